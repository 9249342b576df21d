/**
 * Writes image archives in the format of `docker save`, which Docker and containerd both load. Deterministic: equal content
 * gives equal bytes.
 */
import { createHash } from 'node:crypto';

/** The names of architectures in image manifests. */
export type Architecture = 'amd64' | 'arm64';

/** Returns the architecture of images that are built on this host. */
export function hostArchitecture(): Architecture {
  return process.arch === 'arm64' ? 'arm64' : 'amd64';
}

/** A file of the image. Paths are relative to its root. */
export type FileEntry =
  | { readonly path: string; readonly type: 'file'; readonly content: Buffer; readonly mode: number }
  | { readonly path: string; readonly type: 'directory'; readonly mode: number }
  | { readonly path: string; readonly type: 'symlink'; readonly target: string };

/** An image of one layer. */
export interface ImageContent {
  /** The names of the image, each as `name:tag`. */
  readonly references: readonly string[];
  readonly files: readonly FileEntry[];
  readonly command: readonly string[];
  readonly env: readonly string[];
}

/** Returns one archive with all the images. */
export async function imageArchive(images: readonly ImageContent[], architecture: Architecture): Promise<Buffer> {
  const entries: FileEntry[] = [];
  const manifest: object[] = [];
  for (const image of images) {
    const layer = await tar(image.files);
    const layerId = sha256(layer);
    const config = Buffer.from(
      JSON.stringify({
        architecture,
        os: 'linux',
        created: '2026-01-01T00:00:00Z',
        config: { Cmd: image.command, Env: image.env, WorkingDir: '/' },
        rootfs: { type: 'layers', diff_ids: [`sha256:${layerId}`] },
        history: [{ created: '2026-01-01T00:00:00Z', created_by: 'orchlet' }],
      }),
    );
    const configName = `${sha256(config)}.json`;
    const layerName = `${layerId}/layer.tar`;
    entries.push({ path: configName, type: 'file', content: config, mode: 0o644 });
    if (!entries.some((entry) => entry.path === layerName)) {
      entries.push({ path: `${layerId}/`, type: 'directory', mode: 0o755 });
      entries.push({ path: layerName, type: 'file', content: layer, mode: 0o644 });
    }
    manifest.push({ Config: configName, RepoTags: image.references, Layers: [layerName] });
  }
  entries.push({ path: 'manifest.json', type: 'file', content: Buffer.from(JSON.stringify(manifest)), mode: 0o644 });
  return tar(entries);
}

async function tar(files: readonly FileEntry[]): Promise<Buffer> {
  const { pack } = await import('tar-stream');
  const archive = pack();
  const chunks: Buffer[] = [];
  const collected = (async (): Promise<void> => {
    for await (const chunk of archive) chunks.push(chunk as Buffer);
  })();
  const mtime = new Date(0);
  for (const file of files) {
    if (file.type === 'file') archive.entry({ name: file.path, mode: file.mode, mtime }, file.content);
    else if (file.type === 'directory') archive.entry({ name: file.path, type: 'directory', mode: file.mode, mtime });
    else archive.entry({ name: file.path, type: 'symlink', linkname: file.target, mtime });
  }
  archive.finalize();
  await collected;
  return Buffer.concat(chunks);
}

function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}
