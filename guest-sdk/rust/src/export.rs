//! From the component's exports to a listener. Plugins use it through [`export!`].

use std::cell::RefCell;
use std::marker::PhantomData;

use crate::bindings::exports::mqlet::listener::{concurrent, lifecycle};
use crate::lifecycle::{Lifecycle, Settings};
use crate::listener::ConcurrentBatchListener;
use crate::message::Batch;

/// Makes a listener the plugin: `mqlet_guest::export!(MyListener);`, once in a crate.
///
/// The type implements [`ConcurrentListener`](crate::ConcurrentListener) or
/// [`ConcurrentBatchListener`](crate::ConcurrentBatchListener), and `Default` or
/// [`Lifecycle`](crate::Lifecycle). Natively it only checks that.
#[macro_export]
macro_rules! export {
    ($listener:ty) => {
        const _: fn() = $crate::export::check::<$listener>;

        #[cfg(target_family = "wasm")]
        const _: () = {
            type Plugin = $crate::export::Plugin<$listener>;
    $crate::bindings::__export_bindings!(Plugin with_types_in $crate::bindings);
        };
    };
}

/// Compiles for what can be exported.
pub fn check<T: ConcurrentBatchListener + Lifecycle>() {}

/// What the exports are implemented on.
#[derive(Debug)]
pub struct Plugin<T>(PhantomData<T>);

/// A listener of whatever type.
trait Instance {
    fn consume_batch(&mut self, batch: &Batch) -> Result<concurrent::ConsumeStatus, String>;
    fn shutdown(&mut self);
}

impl<T: ConcurrentBatchListener + Lifecycle> Instance for T {
    fn consume_batch(&mut self, batch: &Batch) -> Result<concurrent::ConsumeStatus, String> {
        let status = ConcurrentBatchListener::consume_batch(self, batch);
        status.map(Into::into).map_err(|error| error.to_string())
    }

    fn shutdown(&mut self) {
        Lifecycle::shutdown(self);
    }
}

thread_local! {
    /// The listener of this instance; a component has one thread, and the host makes one
    /// call at a time.
    static INSTANCE: RefCell<Option<Box<dyn Instance>>> = const { RefCell::new(None) };
}

impl<T: ConcurrentBatchListener + Lifecycle> lifecycle::Guest for Plugin<T> {
    fn init(settings: Vec<(String, String)>) -> Result<(), String> {
        let listener = T::init(&Settings::new(settings)).map_err(|error| error.to_string())?;
        INSTANCE.set(Some(Box::new(listener)));
        Ok(())
    }

    fn shutdown() {
        if let Some(mut instance) = INSTANCE.take() {
            instance.shutdown();
        }
    }
}

impl<T: ConcurrentBatchListener + Lifecycle> concurrent::Guest for Plugin<T> {
    fn consume_message(
        messages: Vec<concurrent::Message>,
        data: Vec<u8>,
        context: concurrent::BatchContext,
    ) -> Result<concurrent::ConsumeStatus, String> {
        let batch = Batch::new(context, messages, data);
        INSTANCE.with_borrow_mut(|instance| match instance {
            Some(instance) => instance.consume_batch(&batch),
            None => Err("the host called before init, or after shutdown".to_owned()),
        })
    }
}
