//! Generated from the contract, nothing else. The rest of the crate wraps it; plugins
//! do not see it.

wit_bindgen::generate!({
    path: "../../wit",
    world: "concurrent-listener-with-lifecycle",
    generate_all,
    pub_export_macro: true,
    export_macro_name: "__export_bindings",
});
