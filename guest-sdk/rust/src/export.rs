//! From the component's exports to a listener. Plugins use it through
//! [`export!`](crate::export), [`export_orderly!`](crate::export_orderly) and
//! [`export_pull_task!`](crate::export_pull_task).

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;

use crate::Error;
use crate::bindings::exports::mqlet::listener::concurrent;
use crate::bindings::lifecycle::exports::mqlet::listener::lifecycle;
use crate::bindings::orderly::exports::mqlet::listener::orderly;
use crate::bindings::scheduled_pull::exports::mqlet::listener::pull_task;
use crate::lifecycle::{Lifecycle, Settings};
use crate::listener::ConcurrentBatchListener;
use crate::message::Batch;
use crate::orderly::OrderlyBatchListener;
use crate::pull_task::{PullQueue, PullTask};

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
    $crate::bindings::__export_concurrent_bindings!(Plugin with_types_in $crate::bindings);
    $crate::bindings::lifecycle::__export_lifecycle_bindings!(Plugin with_types_in $crate::bindings::lifecycle);
        };
    };
}

/// Makes an orderly listener the plugin, once in a crate; the manifest says
/// `listener = "orderly"`.
///
/// The type implements [`OrderlyListener`](crate::OrderlyListener) or
/// [`OrderlyBatchListener`](crate::OrderlyBatchListener), and `Default` or
/// [`Lifecycle`](crate::Lifecycle). Natively it only checks that.
#[macro_export]
macro_rules! export_orderly {
    ($listener:ty) => {
        const _: fn() = $crate::export::check_orderly::<$listener>;

        #[cfg(target_family = "wasm")]
        const _: () = {
            type Plugin = $crate::export::Plugin<$listener>;
    $crate::bindings::orderly::__export_orderly_bindings!(Plugin with_types_in $crate::bindings::orderly);
    $crate::bindings::lifecycle::__export_lifecycle_bindings!(Plugin with_types_in $crate::bindings::lifecycle);
        };
    };
}

/// Makes a pull task the plugin, once in a crate; the manifest says
/// `listener = "scheduled-pull"`.
///
/// The type implements [`PullTask`](crate::PullTask), and `Default` or
/// [`Lifecycle`](crate::Lifecycle). Natively it only checks that.
#[macro_export]
macro_rules! export_pull_task {
    ($task:ty) => {
        const _: fn() = $crate::export::check_pull_task::<$task>;

        #[cfg(target_family = "wasm")]
        const _: () = {
            type Plugin = $crate::export::Plugin<$task>;
    $crate::bindings::scheduled_pull::__export_scheduled_pull_bindings!(Plugin with_types_in $crate::bindings::scheduled_pull);
    $crate::bindings::lifecycle::__export_lifecycle_bindings!(Plugin with_types_in $crate::bindings::lifecycle);
        };
    };
}

/// Compiles for what can be exported.
pub fn check<T: ConcurrentBatchListener + Lifecycle>() {}

/// Compiles for what can be exported.
pub fn check_orderly<T: OrderlyBatchListener + Lifecycle>() {}

/// Compiles for what can be exported.
pub fn check_pull_task<T: PullTask + Lifecycle>() {}

/// What the exports are implemented on.
#[derive(Debug)]
pub struct Plugin<T>(PhantomData<T>);

thread_local! {
    /// The listener of this instance, a `T` of `Plugin<T>`; a component has one thread,
    /// and the host makes one call at a time.
    static INSTANCE: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// Calls the listener of this instance.
fn call<T: 'static, R>(call: impl FnOnce(&mut T) -> Result<R, Error>) -> Result<R, String> {
    INSTANCE.with_borrow_mut(|instance| {
        match instance.as_mut().and_then(|any| any.downcast_mut::<T>()) {
            Some(listener) => call(listener).map_err(|error| error.to_string()),
            None => Err("the host called before init, or after shutdown".to_owned()),
        }
    })
}

impl<T: Lifecycle + 'static> lifecycle::Guest for Plugin<T> {
    fn init(settings: Vec<(String, String)>) -> Result<(), String> {
        let listener = T::init(&Settings::new(settings)).map_err(|error| error.to_string())?;
        INSTANCE.set(Some(Box::new(listener)));
        Ok(())
    }

    fn shutdown() {
        let listener = INSTANCE.take().and_then(|any| any.downcast::<T>().ok());
        if let Some(mut listener) = listener {
            listener.shutdown();
        }
    }
}

impl<T: ConcurrentBatchListener> concurrent::Guest for Plugin<T> {
    fn consume_message(
        messages: Vec<concurrent::Message>,
        data: Vec<u8>,
        context: concurrent::BatchContext,
    ) -> Result<concurrent::ConsumeStatus, String> {
        let batch = Batch::new(context, messages, data);
        call(|listener: &mut T| listener.consume_batch(&batch)).map(Into::into)
    }
}

impl<T: OrderlyBatchListener> orderly::Guest for Plugin<T> {
    fn consume_message(
        messages: Vec<orderly::Message>,
        data: Vec<u8>,
        context: orderly::BatchContext,
    ) -> Result<orderly::ConsumeStatus, String> {
        let batch = Batch::new(context, messages, data);
        call(|listener: &mut T| listener.consume_batch(&batch)).map(Into::into)
    }
}

impl<T: PullTask> pull_task::Guest for Plugin<T> {
    fn do_pull_task(context: pull_task::BatchContext) -> Result<Option<u32>, String> {
        let queue = PullQueue::new(context);
        call(|task: &mut T| task.do_pull_task(&queue)).map(|next| next.to_milliseconds())
    }
}
