//! 200 plugins of 20 tenants, five of them hostile, for ten minutes: what
//! `cargo xtask soak` runs. Minutes and the address of a name server may be given; without
//! an address it is the embedded broker.

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::process::ExitCode;
use std::time::Duration;

use end_to_end::embedded_broker::EmbeddedBroker;
use end_to_end::soak::Soak;

const MINUTES_DEFAULT: f64 = 10.0;
/// What the last third may have more than the second: an allocator's noise.
const GROWTH_MAX_PERCENT: u64 = 10;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let minutes = arguments.next().and_then(|text| text.parse().ok());
    let minutes: f64 = minutes.unwrap_or(MINUTES_DEFAULT);
    let broker = match arguments.next() {
        Some(namesrv_addr) => Err(namesrv_addr),
        None => Ok(EmbeddedBroker::start()),
    };
    let namesrv_addr = match &broker {
        Ok(broker) => broker.namesrv_addr().to_owned(),
        Err(namesrv_addr) => namesrv_addr.clone(),
    };
    let soak = Soak {
        namesrv_addr,
        healthy_tenants: 14,
        plugins_each: 10,
        duration: Duration::from_secs_f64(minutes * 60.0),
    };
    let soaked = soak.run(guest_artifacts::path);
    println!("{soaked:#?}");
    let (before, after) = soaked.resident_mib;
    let is_flat = after * 100 <= before * (100 + GROWTH_MAX_PERCENT);
    if soaked.lost == 0 && soaked.repeated == 0 && soaked.kills > 0 && is_flat {
        println!("nothing lost, nothing twice, memory flat");
        ExitCode::SUCCESS
    } else {
        println!("FAILED");
        ExitCode::FAILURE
    }
}
