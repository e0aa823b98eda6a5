//! `wasi:http`: who may be asked, where that may lead, and what bounds it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use wasm::{HttpClient, HttpConfig, HttpGrant, Resolver};

use crate::reach::{grant_everything, load};
use crate::support::{Plugin, Request, SOON, eventually};
use crate::web_server::WebServer;

/// A plugin that may ask these hosts, in these networks too.
async fn asking(hosts: &[&str], private: &[&str]) -> Plugin {
    asking_with(hosts, private, |_| {}, HttpConfig::default()).await
}

async fn asking_with(
    hosts: &[&str],
    private: &[&str],
    edit: impl FnOnce(&mut HttpGrant),
    config: HttpConfig,
) -> Plugin {
    let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
    let mut grant = HttpGrant::new(hosts);
    grant.private = private
        .iter()
        .map(|network| network.parse().unwrap())
        .collect();
    edit(&mut grant);
    load(|plugin| {
        grant_everything(plugin);
        plugin.grants.http = Some(grant);
        plugin.http = HttpClient::new(config);
    })
    .await
}

async fn ask(plugin: &Plugin, body: &str) -> String {
    plugin.reasons(Request::of(&[body])).await.remove(0)
}

#[tokio::test]
async fn granted_host_answers() {
    let server = WebServer::start().await;
    let address = server.address.to_string();
    let plugin = asking(&[&address], &["127.0.0.1"]).await;
    let url = server.url("/hello");
    assert_eq!(ask(&plugin, &format!("GET {url}")).await, "200 hi");
    let host = server.url("/host");
    assert_eq!(
        ask(&plugin, &format!("GET {host}")).await,
        format!("200 {address}")
    );
    let count = server.url("/count");
    assert_eq!(
        ask(&plugin, &format!("POST {count} 100000")).await,
        "200 100000"
    );
    assert_eq!(
        ask(&plugin, &format!("GET {}", server.url("/none"))).await,
        "404 "
    );
}

#[tokio::test]
async fn other_hosts_ports_and_methods_are_denied() {
    let server = WebServer::start().await;
    let port = server.address.port();
    let plugin = asking(
        &[&format!("127.0.0.1:{port}"), "example.org"],
        &["127.0.0.1"],
    )
    .await;
    let denied = "error: ErrorCode::HttpRequestDenied";
    for request in [
        format!("CONNECT http://127.0.0.1:{port}/hello"),
        format!("BREW http://127.0.0.1:{port}/hello"),
        format!("GET http://127.0.0.1:{}/hello", port ^ 1),
        format!("GET http://localhost:{port}/hello"),
        format!("GET http://127.0.0.2:{port}/hello"),
        format!("GET http://example.org:{port}/hello"),
        "GET http://example.org.evil.test/".to_owned(),
    ] {
        assert_eq!(ask(&plugin, &request).await, denied, "{request}");
    }
    let userinfo = format!("GET http://example.org@127.0.0.1:{port}/hello");
    let answer = ask(&plugin, &userinfo).await;
    assert!(
        answer.starts_with("error: ErrorCode::HttpRequestUriInvalid"),
        "{answer}"
    );
    assert_eq!(server.requests.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn private_addresses_are_refused_in_every_form_unless_they_are_named() {
    let server = WebServer::start().await;
    let port = server.address.port();
    let hosts = [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
    ];
    let hosts: Vec<_> = hosts.iter().map(|host| format!("{host}:{port}")).collect();
    let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
    let plugin = asking(&hosts, &[]).await;
    for host in &hosts {
        let answer = ask(&plugin, &format!("GET http://{host}/hello")).await;
        assert_eq!(
            answer, "error: ErrorCode::DestinationIpProhibited",
            "{host}"
        );
    }
    assert_eq!(server.requests.load(Ordering::SeqCst), 0);

    // The mapped form is the address that is named.
    let plugin = asking(&hosts, &["127.0.0.0/8"]).await;
    let mapped = format!("GET http://[::ffff:127.0.0.1]:{port}/hello");
    assert_eq!(ask(&plugin, &mapped).await, "200 hi");
}

#[tokio::test]
async fn name_that_changes_its_answer_is_checked_where_it_leads() {
    let server = WebServer::start().await;
    let address = server.address;
    let answers: Arc<Mutex<Vec<Vec<SocketAddr>>>> = Arc::default();
    let asked = Arc::new(AtomicUsize::new(0));
    let resolver: Resolver = {
        let (answers, asked) = (Arc::clone(&answers), Arc::clone(&asked));
        Arc::new(move |name, _port| {
            assert_eq!(name, "api.example.org");
            asked.fetch_add(1, Ordering::SeqCst);
            let answer = answers
                .lock()
                .unwrap()
                .pop()
                .expect("asked once for each request");
            Box::pin(async move { Ok(answer) })
        })
    };
    let config = HttpConfig {
        resolver: Some(resolver),
        ..HttpConfig::default()
    };
    // The test's server has to stand for a public one.
    let named = ["127.0.0.1"];
    let plugin = asking_with(&["api.example.org"], &named, |_| {}, config).await;
    let metadata = SocketAddr::from(([169, 254, 169, 254], 80));
    let mapped = "[::ffff:10.0.0.1]:80".parse().unwrap();
    let url = "GET http://API.Example.org./hello";

    answers.lock().unwrap().push(vec![address]);
    assert_eq!(ask(&plugin, url).await, "200 hi");
    for rebound in [vec![metadata], vec![mapped], vec![metadata, mapped]] {
        answers.lock().unwrap().push(rebound);
        let answer = ask(&plugin, url).await;
        assert_eq!(answer, "error: ErrorCode::DestinationIpProhibited");
    }
    // Of several, those that are allowed.
    answers.lock().unwrap().push(vec![metadata, address]);
    assert_eq!(ask(&plugin, url).await, "200 hi");
    assert_eq!(asked.load(Ordering::SeqCst), 5, "once for each request");
}

#[tokio::test]
async fn redirect_is_the_guests_to_follow_and_is_checked_again() {
    let server = WebServer::start().await;
    let address = server.address.to_string();
    let plugin = asking(&[&address, "169.254.169.254"], &["127.0.0.1"]).await;
    let redirect = server.url("/redirect");
    assert_eq!(ask(&plugin, &format!("GET {redirect}")).await, "302 ");
    let answer = ask(&plugin, "GET http://169.254.169.254/latest/meta-data").await;
    assert_eq!(answer, "error: ErrorCode::DestinationIpProhibited");
}

#[tokio::test]
async fn bodies_and_heads_have_bounds() {
    let server = WebServer::start().await;
    let address = server.address.to_string();
    let small = |grant: &mut HttpGrant| {
        grant.request_bytes = 1_000;
        grant.response_bytes = 1_000;
    };
    let plugin = asking_with(&[&address], &["127.0.0.1"], small, HttpConfig::default()).await;
    let fits = format!("GET {}", server.url("/big/1000"));
    assert_eq!(ask(&plugin, &fits).await, "200 1000 bytes");
    let large = ask(&plugin, &format!("GET {}", server.url("/big/1001"))).await;
    assert!(
        large.contains("response body size exceeds limit: 1000 bytes"),
        "{large}"
    );
    let large = ask(&plugin, &format!("POST {} 5000", server.url("/count"))).await;
    assert!(large.contains("HttpRequestBodySize(Some(1000))"), "{large}");
    let head = ask(&plugin, &format!("GET {}", server.url("/headers"))).await;
    assert!(head.contains("HttpResponseHeaderSectionSize"), "{head}");
}

#[tokio::test]
async fn thousand_fetches_share_ten_connections_and_those_beyond_are_told() {
    let server = WebServer::start().await;
    let address = server.address.to_string();
    let config = HttpConfig {
        // One plugin has half of them.
        connections_max: 20,
        ..HttpConfig::default()
    };
    let plugin = Arc::new(asking_with(&[&address], &["127.0.0.1"], |_| {}, config).await);
    let url = server.url("/slowly");
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let plugin = Arc::clone(&plugin);
        let body = format!("many 200 {url}");
        calls.spawn(async move { ask(&plugin, &body).await });
    }
    let mut told = String::new();
    let (mut answered, mut refused) = (0, 0);
    for answers in calls.join_all().await {
        let count = |what: &str| {
            let key = format!("{what}\": ");
            let mut parts = answers.split(&key).skip(1);
            let number = parts.next().and_then(|rest| rest.split([',', '}']).next());
            number.map_or(0, |number| number.parse::<usize>().unwrap())
        };
        answered += count("200 hi");
        refused += count("ErrorCode::ConnectionLimitReached");
        told.push_str(&answers);
    }
    assert_eq!(answered + refused, 1_000, "{told}");
    // Ten, and eight for each of them that waited.
    assert!(
        answered >= 90 && refused > 0,
        "{answered} answered, {refused} refused"
    );
    let most = server.most.load(Ordering::SeqCst);
    assert!(most <= 10, "{most} connections at once");
    // And none is lost: it goes on.
    assert_eq!(ask(&plugin, &format!("GET {url}")).await, "200 hi");
}

#[tokio::test]
async fn one_plugin_leaves_connections_to_its_neighbour() {
    let server = WebServer::start().await;
    let address = server.address.to_string();
    let client = HttpClient::new(HttpConfig {
        connections_max: 2,
        ..HttpConfig::default()
    });
    let plugin = async |name: &str| {
        let mut grant = HttpGrant::new(vec![address.parse().unwrap()]);
        grant.private = vec!["127.0.0.1".parse().unwrap()];
        load(|plugin| {
            grant_everything(plugin);
            plugin.plugin = name.into();
            plugin.grants.http = Some(grant);
            plugin.http = Arc::clone(&client);
        })
        .await
    };
    let (greedy, modest) = (Arc::new(plugin("greedy").await), plugin("modest").await);
    let hung = {
        let (greedy, body) = (
            Arc::clone(&greedy),
            format!("many 4 {}", server.url("/hang")),
        );
        tokio::spawn(async move { ask(&greedy, &body).await })
    };
    eventually("it hangs", || server.requests.load(Ordering::SeqCst) == 1).await;
    let url = server.url("/hello");
    assert_eq!(ask(&modest, &format!("GET {url}")).await, "200 hi");
    assert!(!hung.is_finished());
    hung.abort();
}

#[tokio::test]
async fn look_ups_that_hang_hold_no_more_than_their_few_threads() {
    let begun = Arc::new(AtomicUsize::new(0));
    let resolver: Resolver = {
        let begun = Arc::clone(&begun);
        Arc::new(move |_, _| {
            begun.fetch_add(1, Ordering::SeqCst);
            Box::pin(std::future::pending())
        })
    };
    let config = HttpConfig {
        resolver: Some(resolver),
        ..HttpConfig::default()
    };
    let plugin = asking_with(&["api.example.org"], &[], |_| {}, config).await;
    for _ in 0..2 {
        let mut request = Request::of(&["many 6 http://api.example.org/hello"]);
        request.consume_timeout = Duration::from_secs(2);
        let answer = plugin.reasons(request).await.remove(0);
        assert!(answer.contains("DnsTimeout"), "{answer}");
    }
    assert_eq!(begun.load(Ordering::SeqCst), 4, "of twelve");
}

#[tokio::test]
async fn bodies_that_are_never_sent_are_small() {
    let plugin = asking(&["example.org"], &[]).await;
    let bytes: usize = ask(&plugin, "hoard 100").await.parse().unwrap();
    // Of each one write, and one behind it.
    assert!((1..=100 * 2 * 16 * 1024).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn heads_of_requests_are_on_the_tenants_budget() {
    let server = WebServer::start().await;
    let address = server.address.to_string();
    let plugin = asking(&[&address], &["127.0.0.1"]).await;
    let path = format!("/none/{}", "x".repeat(5_000));
    ask(&plugin, &format!("GET {}", server.url(&path))).await;
    let usage = plugin.listener.config().tenant.usage();
    let sent = usage[0].1.bytes_out;
    assert!((5_000..6_000).contains(&sent), "{sent}");
}

#[tokio::test]
async fn server_that_hangs_is_an_error_before_the_deadline() {
    let server = WebServer::start().await;
    let address = server.address.to_string();
    let plugin = asking(&[&address], &["127.0.0.1"]).await;
    for (path, error) in [
        ("/hang", "HttpResponseTimeout"),
        ("/drip", "connection read timeout"),
    ] {
        let mut request = Request::of(&[&format!("GET {}", server.url(path))]);
        request.consume_timeout = Duration::from_secs(2);
        let answer = tokio::time::timeout(SOON, plugin.reasons(request))
            .await
            .unwrap();
        assert!(answer[0].contains(error), "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn servers_of_https_are_verified() {
    let server = WebServer::start_tls("api.example.org").await;
    let address = server.address;
    let resolver: Resolver = Arc::new(move |_, _| Box::pin(async move { Ok(vec![address]) }));
    let hosts = ["api.example.org", "other.example.org"];
    let trusting = HttpConfig {
        extra_roots: vec![Bytes::from(server.certificate.clone().unwrap())],
        resolver: Some(Arc::clone(&resolver)),
        ..HttpConfig::default()
    };
    let plugin = asking_with(&hosts, &["127.0.0.1"], |_| {}, trusting).await;
    assert_eq!(
        ask(&plugin, "GET https://api.example.org/hello").await,
        "200 hi"
    );
    let wrong_name = ask(&plugin, "GET https://other.example.org/hello").await;
    assert_eq!(wrong_name, "error: ErrorCode::TlsCertificateError");

    let stranger = HttpConfig {
        resolver: Some(resolver),
        ..HttpConfig::default()
    };
    let plugin = asking_with(&hosts, &["127.0.0.1"], |_| {}, stranger).await;
    let unknown = ask(&plugin, "GET https://api.example.org/hello").await;
    assert!(
        unknown.contains("TlsCertificateError") || unknown.contains("trusts no certificate"),
        "{unknown}"
    );
}
