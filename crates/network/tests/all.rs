//! Tests of the crate; those with a namespace need the program, and stand in `cli`.

mod plain {
    use network::Switch;

    #[test]
    fn a_switch_is_plain_data() {
        let text = r#"{"name":"lan","uplink":[{"to":"core","rate":"1 Gbit/s","delay":"50 us"}]}"#;
        let switch: Switch = serde_json::from_str(text).expect("a switch");
        assert_eq!(serde_json::to_string(&switch).expect("JSON"), text);
        let unknown = serde_json::from_str::<Switch>(r#"{"name":"lan","speed":1}"#).unwrap_err();
        assert!(unknown.to_string().contains("speed"), "{unknown}");
    }
}
