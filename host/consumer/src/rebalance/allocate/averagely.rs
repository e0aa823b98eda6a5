//! `AVG`: neighbouring queues in equal shares, the first members one more.

/// The share of `current`; empty when it is no member, `None` when a list is empty.
/// RocketMQ: `AllocateMessageQueueAveragely`.
pub(crate) fn averagely<'a, Q>(
    current: &str,
    queues: &'a [Q],
    consumers: &[impl AsRef<str>],
) -> Option<&'a [Q]> {
    if current.is_empty() || queues.is_empty() || consumers.is_empty() {
        return None;
    }
    let Some(index) = consumers.iter().position(|id| id.as_ref() == current) else {
        return Some(&[]);
    };
    let (share, left_over) = (
        queues.len() / consumers.len(),
        queues.len() % consumers.len(),
    );
    let size = share + usize::from(index < left_over);
    let start = index * share + index.min(left_over);
    Some(&queues[start..start + size])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recorded_case_of_java_is_reproduced() {
        let mut cases = 0;
        for line in include_str!("../../../testdata/allocate_averagely.jsonl").lines() {
            let case: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let list = |name: &str| case[name].as_array().cloned().unwrap_or_default();
            let consumers: Vec<String> = list("consumers")
                .iter()
                .map(|id| id.as_str().expect("text").to_owned())
                .collect();
            let current = case["current"].as_str().unwrap_or_default();
            let queues = list("queues");
            let share = averagely(current, &queues, &consumers);
            if case.get("error").is_some() {
                assert_eq!(share, None, "{line}");
            } else {
                assert_eq!(share, Some(&list("result")[..]), "{line}");
            }
            cases += 1;
        }
        assert_eq!(cases, 300);
    }
}
