//! What can be asked over HTTP, as a program can read it: `GET /openapi.json`.
//!
//! Requests and answers are described from the very types that are read and written, so
//! that the description cannot say something else; a test asks each route of a running
//! host and holds the answers against it.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

use super::answers::failures::{FailureAnswer, FailuresRequest};
use super::answers::usage::UsageAnswer;
use super::answers::{
    ErrorAnswer, ExplainAnswer, ExplainRequest, GroupAnswer, PauseRequest, QueueAnswer, SeekAnswer,
    SeekRequest,
};
use super::plugin_answers::{
    ChangeRequest, DeployRequest, HistoryAnswer, HistoryRequest, PluginAnswer, PluginsAnswer,
    RollbackRequest, UploadAnswer,
};
use super::shadow_answers::{ShadowAnswer, ShadowOf};

type Describe = fn(&mut SchemaGenerator) -> Schema;

/// What is sent.
#[derive(Clone, Copy)]
pub(super) enum Body {
    /// Nothing.
    Nothing,
    /// JSON.
    Json(Describe),
    /// The bytes of a component.
    Component,
}

/// One thing that can be asked.
#[derive(Clone, Copy)]
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    summary: &'static str,
    body: Body,
    answer: Describe,
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Any JSON: the description itself.
fn any(_: &mut SchemaGenerator) -> Schema {
    Schema::default()
}

const fn get(path: &'static str, summary: &'static str, answer: Describe) -> Route {
    Route {
        method: "GET",
        path,
        summary,
        body: Body::Nothing,
        answer,
    }
}

const fn post(
    path: &'static str,
    summary: &'static str,
    body: Describe,
    answer: Describe,
) -> Route {
    Route {
        method: "POST",
        path,
        summary,
        body: Body::Json(body),
        answer,
    }
}

/// Every route there is.
pub(super) const ROUTES: &[Route] = &[
    get("/openapi.json", "This description", any),
    get("/v1/groups", "Consumer groups", of::<Vec<GroupAnswer>>),
    get("/v1/queues", "Queues of the groups", of::<Vec<QueueAnswer>>),
    get("/v1/usage", "What was used", of::<Vec<UsageAnswer>>),
    get("/v1/plugins", "Plugins and revisions", of::<PluginsAnswer>),
    post(
        "/v1/explain",
        "Why something is as it is",
        of::<ExplainRequest>,
        of::<ExplainAnswer>,
    ),
    post(
        "/v1/pause",
        "Hold a group, topic or queue back",
        of::<PauseRequest>,
        of::<GroupAnswer>,
    ),
    post(
        "/v1/drain",
        "Hold back, and finish what is cached",
        of::<PauseRequest>,
        of::<GroupAnswer>,
    ),
    post(
        "/v1/resume",
        "Let it go on",
        of::<PauseRequest>,
        of::<GroupAnswer>,
    ),
    post(
        "/v1/seek",
        "Let a queue go on somewhere else",
        of::<SeekRequest>,
        of::<SeekAnswer>,
    ),
    post(
        "/v1/failures",
        "Failed calls",
        of::<FailuresRequest>,
        of::<Vec<FailureAnswer>>,
    ),
    post(
        "/v1/deploy",
        "Replace a plugin",
        of::<DeployRequest>,
        of::<PluginAnswer>,
    ),
    Route {
        method: "POST",
        path: "/v1/upload",
        summary: "Bring a component to the host, to be deployed by its path",
        body: Body::Component,
        answer: of::<UploadAnswer>,
    },
    post(
        "/v1/shadow",
        "What a shadow did otherwise",
        of::<ShadowOf>,
        of::<ShadowAnswer>,
    ),
    post(
        "/v1/rollback",
        "Let an older revision serve again",
        of::<RollbackRequest>,
        of::<PluginAnswer>,
    ),
    post(
        "/v1/change",
        "End a trial, or give up a deployment",
        of::<ChangeRequest>,
        of::<PluginAnswer>,
    ),
    post(
        "/v1/remove",
        "Take a plugin out",
        of::<ChangeRequest>,
        of::<PluginAnswer>,
    ),
    post(
        "/v1/history",
        "The ledger",
        of::<HistoryRequest>,
        of::<HistoryAnswer>,
    ),
];

/// Something is at this path, for one method or another.
pub(super) fn knows(path: &str) -> bool {
    ROUTES.iter().any(|route| route.path == path)
}

/// The description, OpenAPI 3.1.
pub(super) fn description() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let error = json(&of::<ErrorAnswer>(&mut generator));
    let mut paths = serde_json::Map::new();
    for route in ROUTES {
        let mut operation = json!({
            "summary": route.summary,
            "responses": {
                "200": {
                    "description": "As asked",
                    "content": json(&(route.answer)(&mut generator)),
                },
                "default": {
                    "description": "400: not understood, 401: wrong token, 404: nothing there, 405: wrong method, 409: not as expected, 413: too large, 422: tried without success",
                    "content": error,
                },
            },
        });
        let content = match route.body {
            Body::Nothing => None,
            Body::Json(body) => Some(json(&body(&mut generator))),
            Body::Component => Some(json!({ "application/wasm": {} })),
        };
        if let Some(content) = content {
            operation["requestBody"] = json!({ "required": true, "content": content });
        }
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "mqlet",
            "description": "A running host. Times are milliseconds, offsets numbers.",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn json(schema: &Schema) -> Value {
    json!({ "application/json": { "schema": schema } })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Methods and paths that are matched on, as they stand in the source.
    fn answered() -> Vec<(String, String)> {
        let source = include_str!("routes.rs");
        let routes = source.lines().filter_map(|line| {
            let rest = line.trim().strip_prefix("(\"")?;
            let (method, rest) = rest.split_once("\", \"")?;
            let (path, _) = rest.split_once('"')?;
            Some((method.to_owned(), path.to_owned()))
        });
        routes.collect()
    }

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let mut described: Vec<_> = ROUTES
            .iter()
            .map(|route| (route.method.to_owned(), route.path.to_owned()))
            .collect();
        let mut answered = answered();
        described.sort();
        answered.sort();
        assert_eq!(described, answered);
    }

    #[test]
    fn everything_that_is_referred_to_is_there() {
        let description = description();
        let text = description.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let (place, _) = reference.split_once('"').expect("a text");
            assert!(description.pointer(place).is_some(), "{place}");
        }
        assert!(description["components"]["schemas"]["PluginAnswer"].is_object());
    }
}
