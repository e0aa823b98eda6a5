//! Filters: a real broker evaluates SQL92, or says why it does not; and no older filter of
//! another member decides about ours.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use end_to_end::eventually::eventually;
use interop::broker::Connection;
use interop::cluster::Cluster;
use interop::tenant::{Plugin, Tenant};

/// Generous: the machine may be compiling beside us.
const BOUND: Duration = Duration::from_secs(180);

fn tenant(cluster: &Cluster, expression: &str, component: &std::path::Path) -> Tenant {
    let subscription = format!("expression_type = \"sql92\"\nexpression = {expression:?}");
    let plugin = Plugin {
        subscription: &subscription,
        ..Plugin::of(component, "ledger-group", "Ledger")
    };
    let namesrv_addr = cluster.namesrv_addr();
    Tenant::new(&format!("namesrv_addr = [{namesrv_addr:?}]"), &[plugin])
}

#[test]
fn exactly_the_messages_that_match_come_and_a_wrong_expression_is_told_in_the_brokers_words() {
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&["enablePropertyFilter=true"]);
    cluster.create_topic("Ledger", 4);
    let good = tenant(
        &cluster,
        "region = 'eu' AND price BETWEEN 10 AND 20",
        &component,
    );
    let mut host = good.run();
    host.wait_for_line("serving", BOUND);
    let mut expected = Vec::new();
    for (region, price, matches) in [
        ("eu", "15", true),
        ("eu", "21", false),
        ("us", "15", false),
        ("eu", "10", true),
        ("eu", "none", false),
    ] {
        let bodies: Vec<String> = (0..40).map(|n| format!("{region}-{price}-{n}")).collect();
        let (region, price) = (format!("region={region}"), format!("price={price}"));
        let properties = ["--property", &region, "--property", &price];
        assert!(good.send("Ledger", &bodies, &properties).0);
        if matches {
            expected.extend(bodies);
        }
    }
    // The last one, for the end; and one without any property.
    assert!(good.send("Ledger", &["bare".to_owned()], &[]).0);
    let last = ["--property", "region=eu", "--property", "price=12"];
    assert!(good.send("Ledger", &["last".to_owned()], &last).0);
    expected.push("last".to_owned());
    expected.sort();
    eventually("every message that matches", BOUND, || {
        (host.delivery_count() >= expected.len()).then_some(())
    });
    // What does not match is passed over in the offsets too: nothing of it comes later.
    std::thread::sleep(Duration::from_secs(3));
    let mut bodies: Vec<String> = host.deliveries().into_iter().map(|d| d.body).collect();
    bodies.sort();
    assert_eq!(bodies, expected);
    host.interrupt();
    assert!(host.wait(BOUND).success());

    let wrong = tenant(&cluster, "region = 'eu' AND", &component);
    let mut wrong = wrong.run();
    let line = wrong.wait_for_line("the group consumes nothing", BOUND);
    assert!(line.contains("region = 'eu' AND"), "{line}");
    assert!(line.contains("refused with code 23"), "{line}");
    assert_eq!(wrong.delivery_count(), 0);
    // It can be stopped as any other.
    wrong.interrupt();
    assert!(wrong.wait(BOUND).success());
}

#[test]
fn a_broker_that_evaluates_no_properties_says_so_and_which_switch_it_takes() {
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::shared();
    cluster.create_topic("Ledger", 1);
    let tenant = tenant(&cluster, "region = 'eu'", &component);
    let mut host = tenant.run();
    let line = host.wait_for_line("the group consumes nothing", BOUND);
    assert!(line.contains("enablePropertyFilter"), "{line}");
    assert!(line.contains("SQL92"), "{line}");
}

#[test]
fn an_older_filter_from_a_clock_ahead_passes_over_nothing() {
    let component = guest_artifacts::path("ledger");
    let cluster = Cluster::start(&[]);
    cluster.create_topic("Ledger", 1);
    let namesrv_addr = cluster.namesrv_addr();
    // A member that is being replaced: its filter is narrower, and an hour ahead of us.
    let mut other = Connection::to_broker_of(namesrv_addr);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let ahead = now.expect("after 1970").as_secs() * 1000 + 3_600_000;
    let config = format!("namesrv_addr = [{namesrv_addr:?}]");
    let tenant = Tenant::new(&config, &[Plugin::of(&component, "ledger-group", "Ledger")]);
    let tags = ["--tag", "B"];
    assert!(tenant.send("Ledger", &["first".to_owned()], &tags).0);
    other.announce_filter("ledger-group", "Ledger", "A", ahead);
    let mut host = tenant.run();
    host.wait_for_line("serving", BOUND);
    eventually("what the broker has already", BOUND, || {
        (host.delivery_count() == 1).then_some(())
    });
    // Long polls too.
    assert!(tenant.send("Ledger", &["second".to_owned()], &tags).0);
    eventually("what comes later", BOUND, || {
        (host.delivery_count() == 2).then_some(())
    });
    drop(other);
}
