//! Exports over a real Unix socket.

use serde_json::json;

use super::super::tests::with_api;

const EXPORT: &str = "/v1/nfs/exports/%2Fexports%2Fshare";

#[test]
fn an_export_is_added_changed_and_removed() {
    with_api(|mut api, _| async move {
        let spec = json!({"source": "dir:/srv/share", "allowed_addresses": ["192.0.2.0/24"]});
        let added = api.put(EXPORT, spec.clone()).await.expect(201);
        assert_eq!(added["path"], "/exports/share");
        assert_eq!(added["allowed_addresses"], json!(["192.0.2.0/24"]));
        assert_eq!(
            (&added["read_only"], &added["problem"]),
            (&json!(false), &json!(null))
        );
        api.put(EXPORT, spec).await.expect(200);
        let other = api.put(EXPORT, json!({"source": "dir:/srv/other"})).await;
        other.refused(409, "exists", "dir:/srv/other");
        let set = json!({"read_only": true, "allow_any_host": true});
        let set = api.patch(EXPORT, set).await.expect(200);
        assert_eq!(
            (&set["read_only"], &set["allow_any_host"]),
            (&json!(true), &json!(true))
        );
        let listed = api.get("/v1/nfs/exports").await.expect(200);
        assert_eq!(listed.as_array().map(Vec::len), Some(1));
        let status = api.get("/v1/status").await.expect(200);
        assert_eq!(status["exports"], 1);
        let problems = status["problems"].to_string();
        assert!(
            problems.contains("there are exports, but no listener"),
            "{problems}"
        );
        api.delete(EXPORT).await.expect(204);
        let gone = api.get(EXPORT).await;
        gone.refused(404, "not_found", "/exports/share");
    });
}

#[test]
fn what_cannot_be_exported_is_refused() {
    with_api(|mut api, engine| async move {
        let bad = api
            .put("/v1/nfs/exports/share", json!({"source": "dir:/srv"}))
            .await;
        bad.refused(400, "invalid", "must begin with a slash");
        let bad = api.put(EXPORT, json!({"source": "/srv/share"})).await;
        bad.refused(400, "invalid", "as in dir:/srv/share");
        let addresses = json!({"source": "dir:/srv", "allowed_addresses": ["192.0.2.1/24"]});
        let bad = api.put(EXPORT, addresses).await;
        bad.refused(400, "invalid", "write 192.0.2.0/24");
        engine.fail_url("/srv/share", true);
        let refused = api.put(EXPORT, json!({"source": "dir:/srv/share"})).await;
        refused.refused(422, "directory_open_failed", "CAP_DAC_READ_SEARCH");
        engine.fail_url("/srv/share", false);
        api.put(EXPORT, json!({"source": "dir:/srv/share"}))
            .await
            .expect(201);
        engine.fail_url("/srv/share", true);
        let shown = api.get(EXPORT).await.expect(200);
        assert_eq!(shown["problem"], "it was told to fail");
        let nested = api
            .put(
                "/v1/nfs/exports/%2Fexports",
                json!({"source": "dir:/srv/b"}),
            )
            .await;
        nested.refused(400, "invalid", "exports do not nest");
    });
}

#[test]
fn a_volume_is_made_a_file_changed_and_removed() {
    with_api(|mut api, _| async move {
        for name in ["a", "b"] {
            let volume = json!({"url": "mem:?size=1M"});
            api.put(&format!("/v1/volumes/{name}"), volume)
                .await
                .expect(201);
        }
        let spec = json!({"source": "volumes:", "allow_any_host": true});
        let added = api.put(EXPORT, spec).await.expect(201);
        assert_eq!(
            (&added["files"], &added["problem"]),
            (&json!(null), &json!(null))
        );
        let file = format!("{EXPORT}/files/a");
        let limits = json!({"qos": {"read_iops": {"limit": 1000}}});
        let added = api.put(&file, limits.clone()).await.expect(201);
        assert_eq!(
            (&added["volume"], &added["read_only"], &added["online"]),
            (&json!("a"), &json!(false), &json!(true))
        );
        assert_eq!(added["qos"]["read_iops"]["limit"], 1000);
        api.put(&file, limits).await.expect(200);
        let other = api.put(&file, json!({"read_only": true})).await;
        other.refused(409, "exists", "read_only");
        let set = api.patch(&file, json!({"read_only": true})).await;
        let set = set.expect(200);
        assert_eq!(set["read_only"], true);
        assert_eq!(
            set["qos"]["read_iops"]["limit"], 1000,
            "what is left out stays"
        );
        let listed = api.get(&format!("{EXPORT}/files")).await.expect(200);
        assert_eq!(listed, json!([set]));
        let shown = api.get("/v1/volumes/a").await.expect(200);
        assert_eq!(shown["exports"], json!(["/exports/share"]));
        let latency = api.get(&format!("{file}/latency")).await.expect(200);
        assert_eq!(latency["commands"], json!([]));
        api.get("/v1/latency/files").await.expect(200);
        let status = api.get("/v1/status").await.expect(200);
        assert_eq!(
            (&status["files"], &status["limited_files"]),
            (&json!(1), &json!(1))
        );
        let metrics = api.get("/metrics").await.text;
        let limit = r#"weir_file_limit{export="/exports/share",volume="a",limit="read_iops"} 1000"#;
        assert!(metrics.contains(limit), "{metrics}");
        let in_use = api.delete("/v1/volumes/a").await;
        in_use.refused(409, "in_use", "file a of export /exports/share");
        let unknown = api.put(&format!("{EXPORT}/files/c"), json!({})).await;
        unknown.refused(404, "not_found", "there is no volume c");
        api.delete(&file).await.expect(204);
        api.delete("/v1/volumes/a").await.expect(204);
        let gone = api.get(&file).await;
        gone.refused(404, "not_found", "there is no file a");
    });
}
