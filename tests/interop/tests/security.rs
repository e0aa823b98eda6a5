//! Access control, TLS and namespaces of a real RocketMQ: 5.5.0 with ACL 2.0, 4.9.7 with
//! ACL 1.0.

use std::fs;
use std::path::Path;
use std::time::Duration;

use end_to_end::eventually::eventually;
use end_to_end::host_process::HostProcess;
use interop::cluster::{Cluster, QUICK_LEVELS, VERSION};
use interop::tenant::{Plugin, Tenant};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);

const KEYS: &str = "access_key = \"mqlet-access-key\"\nsecret_key = { file = \"secret\" }";

fn bodies(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}-{n}")).collect()
}

fn tenant(namesrv_addr: &str, connection: &str, plugins: &[Plugin<'_>]) -> Tenant {
    Tenant::new(
        &format!("namesrv_addr = [{namesrv_addr:?}]\n{connection}"),
        plugins,
    )
}

/// A tenant with the right access key and this secret.
fn with_secret(namesrv_addr: &str, secret: &str, plugins: &[Plugin<'_>]) -> Tenant {
    let tenant = tenant(namesrv_addr, KEYS, plugins);
    fs::write(tenant.folder().join("secret"), format!("{secret}\n")).expect("a folder of ours");
    tenant
}

fn all_come(host: &HostProcess, prefix: &str, count: usize) {
    eventually("all messages", BOUND, || {
        let deliveries = host.deliveries();
        let bodies: std::collections::BTreeSet<_> = deliveries
            .iter()
            .filter(|delivery| delivery.body.starts_with(prefix))
            .map(|delivery| &delivery.body)
            .collect();
        (bodies.len() == count).then_some(())
    });
}

/// What a refused tenant must look like: told once, and quiet.
fn is_refused_and_quiet(tenant: &Tenant, words: &str) {
    let mut host = tenant.run();
    let line = host.wait_for_line("refuses us", BOUND);
    assert!(line.contains(words), "{line}");
    assert!(line.contains("check access_key and secret_key"), "{line}");
    let lines = host.lines().len();
    std::thread::sleep(Duration::from_secs(12));
    let more = host.lines().len() - lines;
    assert!(more <= 3, "{more} lines in 12 s: {:?}", host.lines());
    assert_eq!(host.delivery_count(), 0);
    host.interrupt();
    assert!(host.wait(BOUND).success());
    let text = host.lines().join("\n");
    assert!(!text.contains("wrong-secret"), "a secret was printed");
}

/// One after the other on one cluster: the right secret works in every way, a wrong one
/// and none in no way.
fn access_control_holds(cluster: &Cluster, words: &str) {
    let component = guest_artifacts::path("ledger");
    let plugin = Plugin {
        consume: "max_reconsume_times = 1",
        ..Plugin::of(&component, "ledger-group", "Ledger")
    };
    let right = with_secret(cluster.namesrv_addr(), "mqlet-secret-key", &[plugin]);
    let (sent, lines) = right.send("Ledger", &bodies("m", 50), &[]);
    assert!(sent, "{lines:?}");
    let mut host = right.run();
    host.wait_for_line("serving", BOUND);
    all_come(&host, "m-", 50);
    // Back to the broker, from the retry topic, and to the dead letters.
    assert!(right.send("Ledger", &bodies("fail-always", 1), &[]).0);
    eventually("two attempts", BOUND, || {
        let deliveries = host.deliveries();
        let failed = deliveries.iter().filter(|d| d.body.starts_with("fail"));
        (failed.count() >= 2).then_some(())
    });
    let grave = Plugin::of(&component, "undertaker", "%DLQ%ledger-group");
    let grave = with_secret(cluster.namesrv_addr(), "mqlet-secret-key", &[grave]);
    let undertaker = grave.run();
    all_come(&undertaker, "fail-always", 1);
    drop(undertaker);
    host.interrupt();
    assert!(host.wait(BOUND).success());
    // Offsets were committed.
    let mut host = right.run();
    host.wait_for_line("serving", BOUND);
    assert!(right.send("Ledger", &bodies("after", 8), &[]).0);
    all_come(&host, "after-", 8);
    let again = host.deliveries();
    assert!(
        again
            .iter()
            .all(|delivery| !delivery.body.starts_with("m-")),
        "{again:?}"
    );

    let wrong = with_secret(cluster.namesrv_addr(), "wrong-secret", &[plugin]);
    is_refused_and_quiet(&wrong, words);
    let (sent, lines) = wrong.send("Ledger", &bodies("x", 1), &[]);
    assert!(!sent);
    let said = lines.join("\n");
    assert!(said.contains("check access_key and secret_key"), "{said}");
    let nobody = tenant(cluster.namesrv_addr(), "", &[plugin]);
    is_refused_and_quiet(&nobody, "");

    // Nobody else was disturbed.
    assert!(right.send("Ledger", &bodies("end", 8), &[]).0);
    all_come(&host, "end-", 8);
}

/// RocketMQ 5.5.0 that asks everybody who they are; its accounts are in this folder.
fn with_acl_2(folder: &Path) -> Cluster {
    const PACKAGE: &str = "org.apache.rocketmq.auth";
    let user = r#"{"username":"mqlet-access-key","password":"mqlet-secret-key"}"#;
    let inner = r#"{"accessKey":"mqlet-access-key","secretKey":"mqlet-secret-key"}"#;
    let settings = [
        QUICK_LEVELS.to_owned(),
        "authenticationEnabled=true".to_owned(),
        format!(
            "authenticationProvider={PACKAGE}.authentication.provider.DefaultAuthenticationProvider"
        ),
        format!(
            "authenticationMetadataProvider={PACKAGE}.authentication.provider.LocalAuthenticationMetadataProvider"
        ),
        format!("initAuthenticationUser={user}"),
        format!("innerClientAuthenticationCredentials={inner}"),
        "authorizationEnabled=true".to_owned(),
        format!(
            "authorizationProvider={PACKAGE}.authorization.provider.DefaultAuthorizationProvider"
        ),
        format!(
            "authorizationMetadataProvider={PACKAGE}.authorization.provider.LocalAuthorizationMetadataProvider"
        ),
        format!("authConfigPath={}", folder.join("auth").display()),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    Cluster::start(&settings)
}

#[test]
fn acl_2_of_5_5_lets_the_right_secret_in_and_a_wrong_one_is_told_and_quiet() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    access_control_holds(&with_acl_2(folder.path()), "16");
}

#[test]
fn rejected_credentials_of_one_tenant_change_nothing_for_another_of_the_host() {
    let accounts = tempfile::tempdir().expect("a temporary folder");
    let cluster = with_acl_2(accounts.path());
    let component = guest_artifacts::path("ledger");
    let namesrv_addr = cluster.namesrv_addr();
    let wrong = KEYS.replace("\"secret\"", "\"other\"");
    let connection = format!(
        "{KEYS}\n[tenants.wrong]\nplugins = \"wrong\"\nnamesrv_addr = [{namesrv_addr:?}]\n{wrong}"
    );
    let right = Plugin::of(&component, "right-group", "Ledger");
    let tenants = tenant(namesrv_addr, &connection, &[right]);
    let folder = tenants.folder();
    fs::write(folder.join("secret"), "mqlet-secret-key").expect("a folder of ours");
    fs::write(folder.join("other"), "wrong-secret").expect("a folder of ours");
    fs::create_dir(folder.join("wrong")).expect("a folder of ours");
    let manifest = format!(
        "name = \"refused\"\ncomponent = {component:?}\nconsumer_group = \"refused-group\"\n\
         consume_from_where = \"first_offset\"\n[[subscription]]\ntopic = \"Ledger\"\n"
    );
    fs::write(folder.join("wrong/refused.toml"), manifest).expect("a folder of ours");
    assert!(tenants.send("Ledger", &bodies("m", 200), &[]).0);

    let mut host = tenants.run();
    let line = host.wait_for_line("refuses us", BOUND);
    assert!(line.contains("wrong"), "{line}");
    all_come(&host, "m-", 200);
    // While the other one is refused again and again.
    for number in 0..5 {
        let prefix = format!("late{number}");
        assert!(tenants.send("Ledger", &bodies(&prefix, 8), &[]).0);
        all_come(&host, &prefix, 8);
    }
    assert_eq!(host.delivery_count(), 240, "nothing comes twice");
    let deliveries = host.deliveries();
    assert!(deliveries.iter().all(|one| one.reconsume_times == 0));
    host.interrupt();
    assert!(host.wait(BOUND).success());
}

#[test]
fn acl_1_of_4_9_lets_the_right_secret_in_and_a_wrong_one_is_told_and_quiet() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("plain_acl.yml");
    let accounts = "globalWhiteRemoteAddresses:\naccounts:\n- accessKey: mqlet-access-key\n  \
        secretKey: mqlet-secret-key\n  whiteRemoteAddress:\n  admin: false\n  \
        defaultTopicPerm: PUB|SUB\n  defaultGroupPerm: PUB|SUB\n";
    fs::write(&file, accounts).expect("a folder of ours");
    // RocketMQ looks for it below its home.
    let from_home = format!("{}{}", "../".repeat(16), file.display());
    let property = format!("rocketmq.acl.plain.file={from_home}");
    let cluster = Cluster::start_with(
        "4.9.7",
        &[QUICK_LEVELS, "aclEnable=true"],
        &["--property", &property],
    );
    access_control_holds(&cluster, "AclException");
}

/// PEM files of an authority, a server at 127.0.0.1 and a client.
fn certificates(folder: &Path) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("an authority").pem();
    fs::write(folder.join("ca.pem"), authority).expect("a folder of ours");
    let issuer = Issuer::new(params, key);
    for name in ["127.0.0.1", "mqlet"] {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).expect("ours");
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).expect("ours");
    }
}

#[test]
fn tls_with_an_own_authority_and_a_client_certificate_carries_everything() {
    let component = guest_artifacts::path("ledger");
    let folder = tempfile::tempdir().expect("a temporary folder");
    certificates(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let properties = [
        "tls.test.mode.enable=false".to_owned(),
        format!("tls.server.keyPath={}", file("127.0.0.1.key")),
        format!("tls.server.certPath={}", file("127.0.0.1.pem")),
        format!("tls.server.trustCertPath={}", file("ca.pem")),
        "tls.server.authClient=true".to_owned(),
        "tls.server.need.client.auth=require".to_owned(),
    ];
    let mut options = vec!["--tls", "permissive"];
    for property in &properties {
        options.extend(["--property", property]);
    }
    let cluster = Cluster::start_with(VERSION, &[QUICK_LEVELS], &options);
    let plugin = Plugin::of(&component, "ledger-group", "Ledger");
    let with = |tls: &str| {
        let connection = format!("[tenants.test.tls]\n{tls}");
        tenant(cluster.namesrv_addr(), &connection, &[plugin])
    };
    let ca = format!("ca_file = {:?}\n", file("ca.pem"));
    let us = format!(
        "certificate_file = {:?}\nprivate_key_file = {:?}\n",
        file("mqlet.pem"),
        file("mqlet.key")
    );

    let known = with(&format!("{ca}{us}"));
    let (sent, lines) = known.send("Ledger", &bodies("m", 2_000), &[]);
    assert!(sent, "{lines:?}");
    let mut host = known.run();
    host.wait_for_line("serving", BOUND);
    all_come(&host, "m-", 2_000);
    let (sent, _) = known.send("Ledger", &["fail-once-1".to_owned()], &[]);
    assert!(sent);
    eventually("the retry", BOUND, || {
        let deliveries = host.deliveries();
        let tries = deliveries.iter().filter(|d| d.body == "fail-once-1");
        (tries.count() >= 2).then_some(())
    });

    // Whoever does not trust it, or is not trusted, learns why.
    for (tls, words) in [
        (
            "mode = \"verify\"".to_owned(),
            "nobody we trust has signed its certificate",
        ),
        (
            format!("{ca}{us}server_name = \"another.test\""),
            "its certificate is for another name",
        ),
        (ca.clone(), "ertificate"),
    ] {
        let stranger = with(&tls);
        let mut host = stranger.run();
        let line = host.wait_for_line(words, BOUND);
        assert!(!line.contains("panicked"), "{line}");
        host.interrupt();
        assert!(host.wait(BOUND).success());
    }
    let insecure = with(&format!("mode = \"insecure\"\n{us}"));
    let mut loud = insecure.run();
    loud.wait_for_line("trusts any server", BOUND);
    let (sent, lines) = insecure.send("Ledger", &bodies("i", 1), &[]);
    assert!(sent, "{lines:?}");
}

#[test]
fn a_cluster_that_enforces_tls_is_served_and_plain_text_is_told_to_use_it() {
    let component = guest_artifacts::path("ledger");
    let folder = tempfile::tempdir().expect("a temporary folder");
    certificates(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let properties = [
        "tls.test.mode.enable=false".to_owned(),
        format!("tls.server.keyPath={}", file("127.0.0.1.key")),
        format!("tls.server.certPath={}", file("127.0.0.1.pem")),
    ];
    // Two JVMs make their TLS contexts, which takes long beside other work.
    let mut options = vec!["--tls", "enforcing", "--wait", "180"];
    for property in &properties {
        options.extend(["--property", property]);
    }
    let cluster = Cluster::start_with(VERSION, &[QUICK_LEVELS], &options);
    let plugin = Plugin::of(&component, "ledger-group", "Ledger");
    let tls = format!("[tenants.test.tls]\nca_file = {:?}\n", file("ca.pem"));

    // Name server and broker, from the first question on.
    let known = tenant(cluster.namesrv_addr(), &tls, &[plugin]);
    let (sent, lines) = known.send("Ledger", &bodies("m", 200), &[]);
    assert!(sent, "{lines:?}");
    let mut host = known.run();
    host.wait_for_line("serving", BOUND);
    all_come(&host, "m-", 200);
    let (sent, _) = known.send("Ledger", &["fail-once-1".to_owned()], &[]);
    assert!(sent);
    eventually("the retry", BOUND, || {
        let deliveries = host.deliveries();
        let tries = deliveries.iter().filter(|d| d.body == "fail-once-1");
        (tries.count() >= 2).then_some(())
    });
    host.interrupt();
    assert!(host.wait(BOUND).success());

    let plain = tenant(cluster.namesrv_addr(), "", &[plugin]);
    let (sent, lines) = plain.send("Ledger", &bodies("x", 1), &[]);
    assert!(!sent, "{lines:?}");
    let mut host = plain.run();
    let line = host.wait_for_line("may want TLS", BOUND);
    assert!(line.contains(cluster.namesrv_addr()), "{line}");
    assert_eq!(host.delivery_count(), 0);
    host.interrupt();
    assert!(host.wait(BOUND).success());
}

#[test]
fn a_namespace_is_around_every_name_on_the_wire_and_no_plugin_sees_it() {
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&[QUICK_LEVELS]);
    let plugin = Plugin {
        consume: "max_reconsume_times = 1",
        ..Plugin::of(&component, "ledger-group", "Ledger")
    };
    // Tells everything that a plugin is told.
    let describe = guest_artifacts::path("describe");
    let describer = Plugin::of(&describe, "describers", "Ledger");
    let shop = [plugin, describer];
    let shop = tenant(cluster.namesrv_addr(), "namespace = \"shop\"", &shop);
    let lab = tenant(cluster.namesrv_addr(), "namespace = \"lab\"", &[plugin]);
    let (mut in_shop, mut in_lab) = (shop.run(), lab.run());
    in_shop.wait_for_line("serving", BOUND);
    in_lab.wait_for_line("serving", BOUND);
    assert!(shop.send("Ledger", &bodies("shop", 20), &[]).0);
    assert!(lab.send("Ledger", &bodies("lab", 20), &[]).0);
    assert!(shop.send("Ledger", &["fail-always".to_owned()], &[]).0);
    all_come(&in_shop, "shop-", 20);
    all_come(&in_lab, "lab-", 20);
    let told = in_shop.wait_for_line("dead letter: consumer-group=", BOUND);
    for name in ["consumer-group=describers\\n", "topic=Ledger\\n"] {
        assert!(told.contains(name), "{name} in {told}");
    }
    assert!(
        in_shop
            .deliveries()
            .iter()
            .all(|d| !d.body.starts_with("lab"))
    );
    assert!(
        in_lab
            .deliveries()
            .iter()
            .all(|d| !d.body.starts_with("shop"))
    );

    // The retry comes under the name that the plugin knows; then it is a dead letter.
    eventually("both attempts", BOUND, || {
        let deliveries = in_shop.deliveries();
        let tries = deliveries.iter().filter(|d| d.body == "fail-always");
        (tries.count() >= 2).then_some(())
    });
    let grave = Plugin::of(&component, "undertaker", "%DLQ%shop%ledger-group");
    let undertaker = tenant(cluster.namesrv_addr(), "", &[grave]);
    let undertaker = undertaker.run();
    all_come(&undertaker, "fail-always", 1);
    // mqadmin sees the names as they are on the wire.
    let topics = cluster.mqadmin(&["topicList"]);
    for name in [
        "shop%Ledger",
        "lab%Ledger",
        "%RETRY%shop%ledger-group",
        "%RETRY%lab%ledger-group",
    ] {
        assert!(topics.lines().any(|line| line.trim() == name), "{topics}");
    }
    let progress = cluster.mqadmin(&["consumerProgress", "-g", "shop%ledger-group"]);
    assert!(progress.contains("shop%Ledger"), "{progress}");
    // Offsets were committed under the same names.
    in_shop.interrupt();
    assert!(in_shop.wait(BOUND).success());
    let mut in_shop = shop.run();
    in_shop.wait_for_line("serving", BOUND);
    assert!(shop.send("Ledger", &bodies("after", 8), &[]).0);
    all_come(&in_shop, "after-", 8);
    assert_eq!(in_shop.delivery_count(), 8);
}
