//! The broker alone, for trying clients against it:
//! `cargo run -p embedded-broker --features server --example serve -- 127.0.0.1:9876 "1s 1s 1s"`
//! (where to listen, and the delay levels). It prints its events and serves until killed.

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use embedded_broker::{EmbeddedBroker, ServerConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().unwrap_or("127.0.0.1:9876".to_owned());
    let mut config = ServerConfig::listening_on(listen.parse()?);
    if let Some(levels) = arguments.next() {
        config.broker.delay_levels = levels.parse()?;
    }
    config.observer = Arc::new(|event| {
        // Nobody reads it any more: serve on.
        let _ = writeln!(std::io::stderr(), "{event:?}");
    });
    let broker = EmbeddedBroker::start(config).await?;
    writeln!(std::io::stdout(), "name server: {}", broker.namesrv_addr())?;
    std::future::pending().await
}
