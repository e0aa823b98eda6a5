//! Every way of consuming against a real RocketMQ 5.5.0, and its own tool. One program, so
//! that tests wait beside each other, and those that can share a cluster.

mod assign;
mod callbacks;
mod filters;
mod mqadmin;
mod orderly;
mod orderly_rules;
mod pull;
mod strategies;
mod timers;
