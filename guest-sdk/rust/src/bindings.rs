//! Generated from the contract, nothing else. The rest of the crate wraps it; plugins
//! do not see it.
//!
//! One world for each kind of listener, since what is exported is mandatory within a
//! world, and one for `lifecycle`, which every kind exports. A plugin's component has the
//! exports of the two worlds whose macros it uses, and only the imports that it calls.
//! What the worlds share is generated once.

wit_bindgen::generate!({
    path: "../../wit",
    world: "concurrent-listener",
    generate_all,
    pub_export_macro: true,
    export_macro_name: "__export_concurrent_bindings",
});

/// Of an orderly listener.
pub mod orderly {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "orderly-listener",
        with: {
            "mqlet:listener/types@0.1.0": crate::bindings::mqlet::listener::types,
            "mqlet:listener/call@0.1.0": crate::bindings::mqlet::listener::call,
            "mqlet:listener/producer@0.1.0": crate::bindings::mqlet::listener::producer,
            "wasi:logging/logging@0.1.0-draft": crate::bindings::wasi::logging::logging,
        },
        generate_all,
        pub_export_macro: true,
        export_macro_name: "__export_orderly_bindings",
    });
}

/// Of a pull task.
pub mod scheduled_pull {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "scheduled-pull",
        with: {
            "mqlet:listener/types@0.1.0": crate::bindings::mqlet::listener::types,
            "mqlet:listener/call@0.1.0": crate::bindings::mqlet::listener::call,
            "mqlet:listener/producer@0.1.0": crate::bindings::mqlet::listener::producer,
            "wasi:logging/logging@0.1.0-draft": crate::bindings::wasi::logging::logging,
        },
        generate_all,
        pub_export_macro: true,
        export_macro_name: "__export_scheduled_pull_bindings",
    });
}

/// Start and end of an instance.
pub mod lifecycle {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package mqlet:guest;

            world lifecycle {
                export mqlet:listener/lifecycle@0.1.0;
            }
        ",
        world: "mqlet:guest/lifecycle",
        pub_export_macro: true,
        export_macro_name: "__export_lifecycle_bindings",
    });
}

/// What reaches outside, by interfaces that others have written.
pub mod reach {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package mqlet:guest-reach;

            world reach {
                import wasi:config/store@0.2.0-rc.1;
                import wasi:keyvalue/store@0.2.0-draft;
                import wasi:keyvalue/atomics@0.2.0-draft;
                import wasi:http/types@0.2.12;
                import wasi:http/outgoing-handler@0.2.12;
            }
        ",
        world: "mqlet:guest-reach/reach",
        generate_all,
    });
}
