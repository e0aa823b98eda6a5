//! The Rust side of `wit/`, generated; nothing else.
//!
//! The host has a private world that exports everything a plugin may export: what a
//! component really exports is looked up interface by interface (`GuestIndices`), so
//! that one linker and one store type serve every kind of listener.

/// Pulling alone takes owned values: an import's results cannot borrow, and with borrowed
/// ones beside them the messages that are consumed would be of two types.
pub(crate) mod scheduled_pull {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package mqlet:host;

            world scheduled-pull-host {
                import mqlet:listener/pull-consumer@0.1.0;
                export mqlet:listener/pull-task@0.1.0;
            }
        ",
        imports: { default: async },
        exports: { default: async },
    });
}

/// What reaches outside by interfaces that others have written.
pub(crate) mod reach {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "
            package mqlet:reach;

            world reach {
                import wasi:config/store@0.2.0-rc.1;
                import wasi:keyvalue/store@0.2.0-draft;
                import wasi:keyvalue/atomics@0.2.0-draft;
            }
        ",
        world: "mqlet:reach/reach",
        imports: { default: async | trappable },
        with: { "wasi:keyvalue/store.bucket": crate::imports::key_value::Bucket },
    });
}

wasmtime::component::bindgen!({
    path: "../../wit",
    inline: "
        package mqlet:host;

        world host {
            import mqlet:listener/call@0.1.0;
            import mqlet:listener/producer@0.1.0;
            import wasi:logging/logging@0.1.0-draft;
            export mqlet:listener/concurrent@0.1.0;
            export mqlet:listener/orderly@0.1.0;
            export mqlet:listener/lifecycle@0.1.0;
        }
    ",
    ownership: Borrowing { duplicate_if_necessary: true },
    imports: { "mqlet:listener/producer@0.1.0": async },
    exports: { default: async },
});
