//! The listeners that are compared: native Rust, and guests in the sandbox.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use consumer::listener::{
    CancelSignal, ConcurrentlyStatus, ConsumeFuture, ConsumeMode, ConsumeRequest, ConsumeResult,
    MessageListener, OrderlyStatus,
};
use consumer::publish::{MessageProducer, OutgoingMessage, SendError, SendFuture};
use wasm::{
    Artefact, CheckedComponent, ComponentListener, Engine, EngineConfig, Limits, Observer,
    PluginConfig,
};

use crate::kill::Failures;

/// Says "done" and touches nothing.
pub(crate) struct Native;

impl MessageListener for Native {
    fn consume_message(&self, request: Arc<ConsumeRequest>, _: CancelSignal) -> ConsumeFuture {
        Box::pin(async move {
            match request.mode {
                ConsumeMode::Orderly { .. } => ConsumeResult::Orderly(OrderlyStatus::Success),
                ConsumeMode::Concurrently => {
                    let status = ConcurrentlyStatus::ConsumeSuccess { ack_index: None };
                    ConsumeResult::Concurrently(status)
                }
            }
        })
    }
}

/// An engine with few instances: one plugin runs at a time.
///
/// # Errors
/// When wasmtime does not run here.
pub(crate) fn engine(edit: impl FnOnce(&mut EngineConfig)) -> Result<Engine> {
    let mut config = EngineConfig {
        instances_max: 100,
        ..EngineConfig::default()
    };
    edit(&mut config);
    Ok(Engine::new(&config, &silent())?)
}

/// A guest of `target/guests`, compiled.
pub(crate) struct Guest {
    name: &'static str,
    engine: Engine,
    artefact: Artefact,
}

impl Guest {
    /// Compiles it.
    ///
    /// # Errors
    /// When it is not built or refused.
    pub(crate) async fn compile(engine: &Engine, name: &'static str) -> Result<Self> {
        let path = crate::workspace::guest(name);
        let bytes = std::fs::read(&path)
            .with_context(|| format!("cannot read {}; run `cargo xtask guests`", path.display()))?;
        let component = CheckedComponent::check(bytes)
            .map_err(|problems| anyhow!("guest {name} is refused: {problems:?}"))?;
        let artefact = engine.compile(&component).await?;
        Ok(Self {
            name,
            engine: engine.clone(),
            artefact,
        })
    }

    /// Loads it anew. Where its code and memory happen to lie makes a tenth of
    /// difference, so every round should have its own place.
    ///
    /// # Errors
    /// When it does not load.
    pub(crate) async fn load(&self) -> Result<Arc<ComponentListener>> {
        Ok(self.load_with(|_| {}).await?.0)
    }

    /// The same with other limits, and with the calls that fail.
    ///
    /// # Errors
    /// When it does not load.
    pub(crate) async fn load_with(
        &self,
        edit: impl FnOnce(&mut Limits),
    ) -> Result<(Arc<ComponentListener>, Failures)> {
        let mut config = PluginConfig::new(self.name, "bench");
        // A replaced instance in the middle of a round would be measured too.
        config.limits.recycle_after_calls = u64::MAX;
        edit(&mut config.limits);
        let producer = Arc::new(NoProducer);
        let failures = Failures::default();
        let observer = failures.observer();
        let loading =
            ComponentListener::load(&self.engine, &self.artefact, config, producer, observer);
        let loaded = loading.await;
        let listener = loaded.with_context(|| format!("guest {} does not load", self.name))?;
        Ok((Arc::new(listener), failures))
    }
}

/// Hears nothing.
pub(crate) fn silent() -> Observer {
    Arc::new(|_: &wasm::Event| {})
}

/// Sends nothing.
pub(crate) struct NoProducer;

impl MessageProducer for NoProducer {
    fn prepare(&self, _: &mut [OutgoingMessage]) -> Result<(), SendError> {
        Err(SendError::Stopped)
    }

    fn send(&self, _: Vec<OutgoingMessage>, _: Duration) -> SendFuture {
        Box::pin(std::future::ready(Err(SendError::Stopped)))
    }

    fn send_oneway(&self, _: OutgoingMessage) -> SendFuture {
        Box::pin(std::future::ready(Err(SendError::Stopped)))
    }
}
