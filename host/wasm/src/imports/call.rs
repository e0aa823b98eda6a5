//! `mqlet:listener/call`: facts about the call that is running.

use wasmtime_wasi::WasiView;
use wasmtime_wasi::p2::bindings::random::random::Host as _;

use crate::bindings::mqlet::listener::call::{Host, MessageDetails};
use crate::bindings::mqlet::listener::types;
use crate::store::{RunningCall, State};

/// As `wit/host.wit` promises.
const RANDOM_BYTES_MAX: u32 = 4096;

impl types::Host for State {}

impl Host for State {
    fn remaining_ms(&mut self) -> u32 {
        u32::try_from(self.clock.remaining().as_millis()).unwrap_or(u32::MAX)
    }

    fn cancelled(&mut self) -> bool {
        self.call.as_ref().is_some_and(|call| call.is_cancelled())
    }

    fn revision(&mut self) -> String {
        self.plugin.config.revision.to_string()
    }

    /// No call is traced yet.
    fn traceparent(&mut self) -> Option<String> {
        None
    }

    fn details(&mut self, index: u32) -> Option<MessageDetails> {
        let call = self.call.as_ref()?;
        if let RunningCall::InWorker(call) = call {
            let details = call.details.get(index as usize)?.clone();
            return Some(MessageDetails {
                born_host: details.born_host,
                store_host: details.store_host,
                offset_message_id: details.offset_message_id,
                body_crc: details.body_crc,
                prepared_transaction_offset: details.prepared_transaction_offset,
            });
        }
        let message = call.message(index as usize)?.message;
        Some(MessageDetails {
            born_host: message.born_host().to_string(),
            store_host: message.store_host().to_string(),
            offset_message_id: message.offset_message_id(),
            body_crc: message.body_crc().cast_unsigned(),
            prepared_transaction_offset: u64::try_from(message.prepared_transaction_offset())
                .unwrap_or(0),
        })
    }

    fn now_ms(&mut self) -> u64 {
        u64::try_from(self.clocks.unix_now().as_millis()).unwrap_or(u64::MAX)
    }

    fn random(&mut self, count: u32) -> Vec<u8> {
        // Fails only above `limits::RANDOM_BYTES_MAX`, which is larger.
        self.ctx()
            .ctx
            .random()
            .get_random_bytes(u64::from(count.min(RANDOM_BYTES_MAX)))
            .unwrap_or_default()
    }
}
