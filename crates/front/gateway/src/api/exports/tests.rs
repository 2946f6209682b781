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
