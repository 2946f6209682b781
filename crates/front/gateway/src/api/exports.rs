//! `/v1/nfs`: exports.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;

use super::input::{Body, Names};
use super::views::{ExportView, FileView};
use super::{ApiError, Context, Refusals, Shared, added};
use crate::engine::EngineError;
use crate::name::{ExportPath, VolumeName};
use crate::state::{Change, ExportPatch, ExportSpec, FileSpec, NfsChange, NfsExport};

/// Says why clients of an export have to wait, where they have to.
async fn problem(context: &Context, export: &NfsExport) -> Option<String> {
    let engine = context.control.engine();
    let directory = export.directory()?;
    match engine.look_at_directory(directory).await {
        Ok(root) if root == export.root => None,
        Ok(_) => Some(format!(
            "{directory} is another directory than the one that was exported: is its disk mounted?"
        )),
        Err(EngineError::OpenDirectory { reason, .. }) => Some(reason),
        Err(error) => Some(error.to_string()),
    }
}

async fn view(context: &Context, path: &ExportPath) -> Result<ExportView, ApiError> {
    let state = context.control.state();
    let export = state.export(path)?;
    Ok(ExportView::new(
        &**context.control.engine(),
        path,
        export,
        problem(context, export).await,
    ))
}

async fn change(context: &Context, change: NfsChange) -> Result<bool, ApiError> {
    Ok(context.control.change(Change::Nfs(change)).await?.changed)
}

/// Lists the exports.
#[utoipa::path(get, path = "/v1/nfs/exports", tag = "nfs", operation_id = "list_exports",
    responses((status = 200, body = Vec<ExportView>)))]
pub(super) async fn list(State(context): Shared) -> Json<Vec<ExportView>> {
    let state = context.control.state();
    let mut views = Vec::new();
    for (path, export) in &state.exports {
        views.push(ExportView::new(
            &**context.control.engine(),
            path,
            export,
            problem(&context, export).await,
        ));
    }
    Json(views)
}

/// Shows an export.
#[utoipa::path(get, path = "/v1/nfs/exports/{path}", tag = "nfs", operation_id = "show_export",
    params(("path" = ExportPath, Path)),
    responses((status = 200, body = ExportView), Refusals))]
pub(super) async fn show(
    State(context): Shared,
    Names(path): Names<ExportPath>,
) -> Result<Json<ExportView>, ApiError> {
    view(&context, &path).await.map(Json)
}

/// Adds an export.
#[utoipa::path(put, path = "/v1/nfs/exports/{path}", tag = "nfs", operation_id = "add_export",
    params(("path" = ExportPath, Path)), request_body = ExportSpec,
    responses((status = 201, body = ExportView), (status = 200, body = ExportView), Refusals))]
pub(super) async fn add(
    State(context): Shared,
    Names(path): Names<ExportPath>,
    Body(spec): Body<ExportSpec>,
) -> Result<impl IntoResponse, ApiError> {
    let control = &context.control;
    let is_known = control.state().exports.contains_key(&path);
    let directory = spec.source.strip_prefix(crate::state::DIRECTORY_SCHEME);
    // What is no directory's source is refused by the state, which says why.
    let root = match directory.filter(|_| !is_known) {
        Some(directory) => control.engine().look_at_directory(directory).await?,
        None => String::new(),
    };
    let name = path.clone();
    let changed = change(&context, NfsChange::AddExport { path, spec, root }).await?;
    Ok(added(changed, view(&context, &name).await?))
}

/// Changes an export.
#[utoipa::path(patch, path = "/v1/nfs/exports/{path}", tag = "nfs", operation_id = "set_export",
    params(("path" = ExportPath, Path)), request_body = ExportPatch,
    responses((status = 200, body = ExportView), Refusals))]
pub(super) async fn set(
    State(context): Shared,
    Names(path): Names<ExportPath>,
    Body(patch): Body<ExportPatch>,
) -> Result<Json<ExportView>, ApiError> {
    let name = path.clone();
    change(&context, NfsChange::SetExport { path, patch }).await?;
    view(&context, &name).await.map(Json)
}

/// Removes an export. Its directory, or its volumes, stay as they are.
#[utoipa::path(delete, path = "/v1/nfs/exports/{path}", tag = "nfs",
    operation_id = "remove_export",
    params(("path" = ExportPath, Path)), responses((status = 204), Refusals))]
pub(super) async fn remove(
    State(context): Shared,
    Names(path): Names<ExportPath>,
) -> Result<StatusCode, ApiError> {
    change(&context, NfsChange::RemoveExport { path }).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn file_view(
    context: &Context,
    path: &ExportPath,
    volume: &VolumeName,
) -> Result<FileView, ApiError> {
    let state = context.control.state();
    let file = state.file(path, volume)?;
    Ok(FileView::new(
        &**context.control.engine(),
        path,
        volume,
        file,
    ))
}

/// Lists the volumes that are files of an export.
#[utoipa::path(get, path = "/v1/nfs/exports/{path}/files", tag = "nfs", operation_id = "list_files",
    params(("path" = ExportPath, Path)),
    responses((status = 200, body = Vec<FileView>), Refusals))]
pub(super) async fn list_files(
    State(context): Shared,
    Names(path): Names<ExportPath>,
) -> Result<Json<Vec<FileView>>, ApiError> {
    view(&context, &path).await.map(|view| Json(view.files))
}

/// Shows a volume that is a file of an export.
#[utoipa::path(get, path = "/v1/nfs/exports/{path}/files/{volume}", tag = "nfs",
    operation_id = "show_file",
    params(("path" = ExportPath, Path), ("volume" = VolumeName, Path)),
    responses((status = 200, body = FileView), Refusals))]
pub(super) async fn show_file(
    State(context): Shared,
    Names((path, volume)): Names<(ExportPath, VolumeName)>,
) -> Result<Json<FileView>, ApiError> {
    file_view(&context, &path, &volume).map(Json)
}

/// Makes a volume a file of an export whose source is `volumes:`. The file has the volume's name and size.
#[utoipa::path(put, path = "/v1/nfs/exports/{path}/files/{volume}", tag = "nfs",
    operation_id = "add_file",
    params(("path" = ExportPath, Path), ("volume" = VolumeName, Path)), request_body = FileSpec,
    responses((status = 201, body = FileView), (status = 200, body = FileView), Refusals))]
pub(super) async fn add_file(
    State(context): Shared,
    Names((path, volume)): Names<(ExportPath, VolumeName)>,
    Body(spec): Body<FileSpec>,
) -> Result<impl IntoResponse, ApiError> {
    let (export, name) = (path.clone(), volume.clone());
    let changed = change(&context, NfsChange::AddFile { path, volume, spec }).await?;
    Ok(added(changed, file_view(&context, &export, &name)?))
}

/// Changes a volume's properties as a file.
#[utoipa::path(patch, path = "/v1/nfs/exports/{path}/files/{volume}", tag = "nfs",
    operation_id = "set_file",
    params(("path" = ExportPath, Path), ("volume" = VolumeName, Path)), request_body = FileSpec,
    responses((status = 200, body = FileView), Refusals))]
pub(super) async fn set_file(
    State(context): Shared,
    Names((path, volume)): Names<(ExportPath, VolumeName)>,
    Body(patch): Body<FileSpec>,
) -> Result<Json<FileView>, ApiError> {
    let (export, name) = (path.clone(), volume.clone());
    let asked = NfsChange::SetFile {
        path,
        volume,
        patch,
    };
    change(&context, asked).await?;
    file_view(&context, &export, &name).map(Json)
}

/// Removes a file of an export; its volume stays.
#[utoipa::path(delete, path = "/v1/nfs/exports/{path}/files/{volume}", tag = "nfs",
    operation_id = "remove_file",
    params(("path" = ExportPath, Path), ("volume" = VolumeName, Path)),
    responses((status = 204), Refusals))]
pub(super) async fn remove_file(
    State(context): Shared,
    Names((path, volume)): Names<(ExportPath, VolumeName)>,
) -> Result<StatusCode, ApiError> {
    change(&context, NfsChange::RemoveFile { path, volume }).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests;
