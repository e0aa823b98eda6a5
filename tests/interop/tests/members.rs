//! Members of one group that read different things, and a group without rights beside one
//! that has them.

use std::fs;
use std::time::Duration;

use end_to_end::eventually::eventually;
use end_to_end::host_process::HostProcess;
use interop::cluster::{Cluster, QUICK_LEVELS};
use interop::host::mqlet;
use interop::java;
use interop::tenant::{Plugin, Tenant};

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);

fn tenant(cluster: &Cluster, connection: &str, plugins: &[Plugin<'_>]) -> Tenant {
    let namesrv = cluster.namesrv_addr();
    Tenant::new(
        &format!("namesrv_addr = [{namesrv:?}]\n{connection}"),
        plugins,
    )
}

#[test]
fn members_that_read_something_else_are_told_of() {
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&[QUICK_LEVELS]);
    let reading = |expression| Plugin {
        subscription: expression,
        ..Plugin::of(&component, "ledger-group", "Ledger")
    };
    let some = tenant(&cluster, "", &[reading("expression = \"TagA\"")]);
    let others = tenant(&cluster, "", &[reading("expression = \"TagB\"")]);
    let mut one = some.run();
    one.wait_for_line("serving", BOUND);
    assert!(some.send("Ledger", &["m-1".to_owned()], &[]).0);
    let mut two = others.run();
    two.wait_for_line("serving", BOUND);
    // Each of two is the other's neighbour.
    for (host, theirs) in [(&mut one, "TagB"), (&mut two, "TagA")] {
        let line = host.wait_for_line("has other subscriptions", BOUND);
        let what = format!("and with \\\"{theirs}\\\" there");
        assert!(line.contains(&what), "{what} in {line}");
    }
    let explained = mqlet(some.folder(), &["explain", "ledger-group"]);
    assert!(explained.contains("other subscriptions"), "{explained}");
    // A Java member reads everything, and comes after one of them.
    let arguments = [cluster.namesrv_addr(), "ledger-group", "Ledger", "AVG"];
    let mut java = HostProcess::spawn(&mut java::program("Member", &arguments));
    java.wait_for_line("started", BOUND);
    eventually("somebody who has asked Java", BOUND, || {
        let mut lines = one.lines().into_iter().chain(two.lines());
        let asked = lines.any(|line| line.contains("and with \\\"*\\\" there"));
        asked.then_some(())
    });
    java.close_stdin();
}

#[test]
fn a_group_without_rights_keeps_no_other_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("plain_acl.yml");
    let accounts = "globalWhiteRemoteAddresses:\naccounts:\n- accessKey: mqlet-access-key\n  \
        secretKey: mqlet-secret-key\n  whiteRemoteAddress:\n  admin: false\n  \
        defaultTopicPerm: PUB|SUB\n  defaultGroupPerm: DENY\n  groupPerms:\n  - allowed=SUB\n  \
        - also-allowed=SUB\n";
    fs::write(&file, accounts).expect("a folder of ours");
    // RocketMQ looks for it below its home.
    let from_home = format!("{}{}", "../".repeat(16), file.display());
    let property = format!("rocketmq.acl.plain.file={from_home}");
    let cluster = Cluster::start_with(
        "4.9.7",
        &[QUICK_LEVELS, "aclEnable=true"],
        &["--property", &property],
    );
    let component = guest_artifacts::path("ledger");
    let groups = ["allowed", "without-rights", "also-allowed"];
    let plugins = groups.map(|group| Plugin::of(&component, group, "Ledger"));
    let keys = "access_key = \"mqlet-access-key\"\nsecret_key = { file = \"secret\" }";
    let tenant = tenant(&cluster, keys, &plugins);
    fs::write(tenant.folder().join("secret"), "mqlet-secret-key\n").expect("a folder of ours");
    let bodies: Vec<String> = (0..20).map(|number| format!("m-{number}")).collect();
    let (sent, lines) = tenant.send("Ledger", &bodies, &[]);
    assert!(sent, "{lines:?}");
    let mut host = tenant.run();
    let line = host.wait_for_line("refuses the group", BOUND);
    assert!(line.contains("without-rights"), "{line}");
    // Both of the others have every message, and nobody else has any.
    eventually("all messages, twice", BOUND, || {
        (host.delivery_count() >= 40).then_some(())
    });
    let lines = host.lines().len();
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(host.delivery_count(), 40);
    let more = host.lines().len() - lines;
    assert!(more <= 5, "{more} lines in 5 s: {:?}", host.lines());
    let explained = mqlet(tenant.folder(), &["explain", "without-rights"]);
    assert!(explained.contains("what the group may do"), "{explained}");
    let explained = mqlet(tenant.folder(), &["explain", "allowed"]);
    assert!(!explained.contains("refuses"), "{explained}");
}
