//! A tenant's budgets, which the sandbox counts, kept by the client that starts its calls.

use std::sync::Arc;

use driver::{CallGate, Closed};

/// Open while the tenant is within its budgets.
#[derive(Debug)]
pub(crate) struct BudgetGate(Arc<wasm::Tenant>);

impl BudgetGate {
    pub(crate) fn of(tenant: &Arc<wasm::Tenant>) -> Arc<dyn CallGate> {
        Arc::new(Self(Arc::clone(tenant)))
    }
}

impl CallGate for BudgetGate {
    fn closed(&self) -> Option<Closed> {
        self.0.over_budget().map(|over| Closed {
            reason: over.to_string(),
            ask_again: over.look_again,
        })
    }

    fn handle_begun(&self, messages: usize) {
        self.0.spend_messages(messages);
    }
}
