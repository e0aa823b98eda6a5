//! Lines of a client's shell: connections, calls that went wrong.

use std::sync::Arc;

use ::driver::Event;
use tracing::{debug, error, info, warn};

use super::consumer;
use crate::telemetry::repeats::Repeats;

pub(in crate::telemetry) fn event(repeats: &Repeats, tenant: &Arc<str>, event: &Event) {
    match event {
        Event::Client(event) => consumer::event(repeats, tenant, event),
        Event::Connected { address } => {
            let untold = repeats.end(&unreachable(tenant, address));
            if repeats.is_in_a_row(&useless(tenant, address)) {
                debug!(target: "driver", %tenant, %address, untold, "connected to {address}");
            } else {
                info!(target: "driver", %tenant, %address, untold, "connected to {address}");
            }
        }
        Event::Disconnected {
            address,
            reason,
            has_answered: true,
        } => {
            repeats.end(&overloaded(tenant, address));
            let untold = repeats.end(&useless(tenant, address));
            info!(target: "driver", %tenant, %address, untold, "connection to {address} ended: {reason}");
        }
        Event::Disconnected {
            address,
            reason,
            has_answered: false,
        } => {
            // Once, as long as it is the same.
            if repeats.first(&useless(tenant, address)) {
                info!(target: "driver", %tenant, %address, "connection to {address} ended before anything was answered: {reason}; it may want TLS (the tenant's tls table), or be no RocketMQ server; trying again until it answers");
            } else {
                debug!(target: "driver", %tenant, %address, "connection to {address} ended before anything was answered: {reason}");
            }
        }
        Event::ConnectFailed { address, reason } => {
            // Once; the next line about it is its end.
            if repeats.first(&unreachable(tenant, address)) {
                warn!(target: "driver", %tenant, %address, "{reason}; trying again until it answers");
            } else {
                debug!(target: "driver", %tenant, %address, "{reason}");
            }
        }
        Event::OnewayNotSent { address, reason } => {
            if let Some(untold) = repeats.admit(&format!("oneway {tenant} {address}")) {
                warn!(target: "driver", %tenant, %address, untold, "a one-way request was not sent to {address}: {reason}");
            }
        }
        Event::LocalOffsetsNotRewritten {
            consumer_group,
            reason,
        } => {
            warn!(target: "driver", %tenant, %consumer_group, "local offsets: they were read, and are still known by the name servers of before, so leave one of those in namesrv_addr: {reason}");
        }
        Event::ServerRequestsOverloaded { address } => {
            if repeats.first(&overloaded(tenant, address)) {
                warn!(target: "driver", %tenant, %address, "{address} asks faster than it is answered; requests of it are turned away");
            }
        }
        Event::ListenerPanicked {
            consumer_group,
            queue,
            message,
        } => {
            error!(target: "driver", %tenant, %consumer_group, %queue, "a listener panicked, which is a bug of mqlet; its messages come again: {message}");
        }
        Event::CallSlow {
            consumer_group,
            queue,
            elapsed,
        } => {
            if let Some(untold) = repeats.admit(&format!("slow {tenant} {consumer_group}")) {
                warn!(target: "driver", %tenant, %consumer_group, %queue, untold, "a call took {elapsed:.1?}, longer than consume_timeout");
            }
        }
        Event::CallsKilled {
            consumer_group,
            calls,
        } => {
            let consumer_group = consumer_group.as_deref();
            warn!(target: "driver", %tenant, consumer_group, calls, "{calls} calls did not end within the drain timeout and were killed; their messages come again");
        }
        Event::StopIncomplete => {
            warn!(target: "driver", %tenant, "stopped before the last offsets were confirmed; some messages may come again");
        }
        Event::ClientTaskPanicked { message } => {
            error!(target: "driver", %tenant, "the client's task panicked, which is a bug of mqlet: {message}");
        }
    }
}

fn unreachable(tenant: &str, address: &protocol::Address) -> String {
    format!("unreachable {tenant} {address}")
}

fn useless(tenant: &str, address: &protocol::Address) -> String {
    format!("useless {tenant} {address}")
}

fn overloaded(tenant: &str, address: &protocol::Address) -> String {
    format!("overloaded {tenant} {address}")
}
