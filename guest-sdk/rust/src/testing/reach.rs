//! What native tests give for settings, secrets, buckets and answers by HTTP. One of each
//! for each thread, as tests run in threads of their own.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use crate::http::{HttpError, Request, Response};

#[derive(Default)]
pub(super) struct Outside {
    pub(super) settings: Vec<(String, String)>,
    pub(super) secrets: Vec<(String, String)>,
    pub(super) buckets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// Said of every operation on a bucket.
    pub(super) failure: Option<String>,
    pub(super) answers: VecDeque<Result<Response, HttpError>>,
    pub(super) asked: Vec<Request>,
}

thread_local! {
    pub(super) static OUTSIDE: RefCell<Outside> = RefCell::default();
}

/// What [`config`](crate::config) has in this test from now on.
pub fn set_config(
    settings: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    secrets: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
) {
    let settings = settings
        .into_iter()
        .map(|(key, value)| (key.into(), value.into()));
    let secrets = secrets
        .into_iter()
        .map(|(key, value)| (key.into(), value.into()));
    OUTSIDE.with_borrow_mut(|outside| {
        outside.settings = settings.collect();
        outside.secrets = secrets.collect();
    });
}

/// Grants a bucket in this test; it is empty.
pub fn grant_bucket(name: &str) {
    OUTSIDE.with_borrow_mut(|outside| outside.buckets.insert(name.to_owned(), BTreeMap::new()));
}

/// What a bucket of this test has.
pub fn bucket(name: &str) -> BTreeMap<String, Vec<u8>> {
    OUTSIDE.with_borrow(|outside| outside.buckets.get(name).cloned().unwrap_or_default())
}

/// Makes everything with buckets fail in this test from now on; `None` ends that.
pub fn fail_buckets(reason: Option<&str>) {
    OUTSIDE.with_borrow_mut(|outside| outside.failure = reason.map(str::to_owned));
}

/// The answer to the next request that has none yet; a request without one is denied.
pub fn answer_http(answer: Result<Response, HttpError>) {
    OUTSIDE.with_borrow_mut(|outside| outside.answers.push_back(answer));
}

/// The requests of this test so far.
pub fn asked_by_http() -> Vec<Request> {
    OUTSIDE.with_borrow(|outside| outside.asked.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_value::{Bucket, KeyValueError};

    #[test]
    fn settings_are_listed_and_secrets_are_not() {
        set_config([("region", "eu")], [("api-key", "s3cret")]);
        assert_eq!(
            crate::config::get("region").expect("there"),
            Some("eu".to_owned())
        );
        let secret = crate::config::secret("api-key").expect("there");
        assert_eq!(
            (secret.reveal(), format!("{secret:?}").as_str()),
            ("s3cret", "Secret")
        );
        let all = crate::config::all().expect("there");
        assert_eq!(all, [("region".to_owned(), "eu".to_owned())]);
        let missing = crate::config::secret("other")
            .expect_err("missing")
            .to_string();
        assert!(missing.contains("add it to [secrets]"), "{missing}");
    }

    #[test]
    fn buckets_keep_count_and_list() {
        assert_eq!(Bucket::open("b").err(), Some(KeyValueError::AccessDenied));
        grant_bucket("b");
        let bucket = Bucket::open("b").expect("granted");
        for key in ["e", "d", "c", "b", "a"] {
            bucket.set(key, key).expect("kept");
        }
        let keys: Result<Vec<_>, _> = bucket.keys().collect();
        assert_eq!(keys.expect("listed"), ["a", "b", "c", "d", "e"]);
        bucket.delete("a").expect("gone");
        assert_eq!((bucket.get("a"), bucket.exists("b")), (Ok(None), Ok(true)));
        assert_eq!(bucket.increment("n", 3), Ok(3));
        assert_eq!(bucket.increment("n", 4), Ok(7));
        fail_buckets(Some("Redis is gone"));
        let gone = KeyValueError::Other("Redis is gone".to_owned());
        assert_eq!(bucket.get("b"), Err(gone.clone()));
        assert_eq!(bucket.keys().collect::<Vec<_>>(), [Err(gone)]);
    }

    #[test]
    fn requests_are_recorded_and_answered_in_order() {
        answer_http(Ok(Response::new(201).with_body("made")));
        let request = Request::post("https://api.example.org/").body("x");
        assert_eq!(request.clone().send().map(|answer| answer.status), Ok(201));
        assert_eq!(Request::get("https://other").send(), Err(HttpError::Denied));
        assert_eq!(asked_by_http()[0], request);
    }
}
