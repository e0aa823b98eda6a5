//! Reaches outside by the Rust SDK, as each message says, and answers with a dead letter that
//! has what came of it. The words of a body:
//!
//! `config KEY` | `secret KEY` | `get BUCKET KEY` | `set BUCKET KEY VALUE` | `keys BUCKET` |
//! `add BUCKET KEY DELTA` | `METHOD URL [BODY]`.

use mqlet_guest::http::Request;
use mqlet_guest::key_value::Bucket;
use mqlet_guest::{ConcurrentListener, Error, Message, Outcome, config};

#[derive(Default)]
struct Listener;

impl ConcurrentListener for Listener {
    fn consume_message(&mut self, message: Message<'_>) -> Result<Outcome, Error> {
        let answer = obey(message.body_text()?);
        Ok(Outcome::dead_letter(
            answer.unwrap_or_else(|error| format!("error: {error}")),
        ))
    }
}

mqlet_guest::export!(Listener);

fn obey(body: &str) -> Result<String, Error> {
    let words: Vec<&str> = body.split(' ').collect();
    Ok(match words[..] {
        ["config", key] => format!("{:?}", config::get(key)?),
        ["secret", key] => config::secret(key)?.reveal().to_owned(),
        ["get", bucket, key] => match Bucket::open(bucket)?.get(key)? {
            Some(value) => String::from_utf8(value)?,
            None => "none".to_owned(),
        },
        ["set", bucket, key, value] => {
            Bucket::open(bucket)?.set(key, value)?;
            "set".to_owned()
        }
        ["keys", bucket] => {
            let bucket = Bucket::open(bucket)?;
            let keys: Result<Vec<_>, _> = bucket.keys().collect();
            keys?.join(",")
        }
        ["add", bucket, key, delta] => {
            let sum = Bucket::open(bucket)?.increment(key, delta.parse()?)?;
            sum.to_string()
        }
        [method, url, ref body @ ..] => {
            let request = Request::new(method, url).header("x-mqlet", "1");
            let answer = request.body(body.join(" ")).send()?;
            format!("{} {}", answer.status, answer.body_text()?)
        }
        _ => return Err(format!("what is {body}?").into()),
    })
}
