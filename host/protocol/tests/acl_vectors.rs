//! Signatures against a table of what RocketMQ 5.5.0's `AclClientRPCHook` makes.

mod vectors;

use std::collections::BTreeMap;

use protocol::{Credentials, ExtFields, RemotingCommand};
use vectors::{table, unhex};

#[test]
fn requests_are_signed_as_java_signs_them() {
    for row in table("acl-signature", 30) {
        let text = |key: &str| row[key].as_str().map(str::to_owned);
        let credentials = Credentials::new(
            text("accessKey").unwrap(),
            text("secretKey").unwrap(),
            text("securityToken"),
        )
        .unwrap();
        let fields: BTreeMap<String, String> =
            serde_json::from_value(row["extFields"].clone()).unwrap();
        let mut command = RemotingCommand::request(11, ExtFields::from_iter(fields))
            .with_body(text("bodyHex").map_or_else(Vec::new, |hex| unhex(&hex)));

        credentials.sign(&mut command);

        let expected: BTreeMap<String, String> =
            serde_json::from_value(row["result"].clone()).unwrap();
        let signed = command.ext_fields.as_ref().unwrap();
        let signed: BTreeMap<String, String> = signed
            .iter()
            .map(|(name, value)| (name.to_owned(), value.unwrap().to_owned()))
            .collect();
        assert_eq!(signed, expected, "{row}");

        // Sent again: the old signature is not signed with the rest.
        let once = command.clone();
        credentials.sign(&mut command);
        assert_eq!(command, once, "{row}");
    }
}
