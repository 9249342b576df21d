/** Image archives made by tests: one layer with one file, in the form of `docker save`, under names of one's own. */
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { pack } from 'tar-stream';

async function tarOf(files: Readonly<Record<string, string | Buffer>>): Promise<Buffer> {
  const archive = pack();
  for (const [name, content] of Object.entries(files)) archive.entry({ name, mode: 0o644 }, content);
  archive.finalize();
  const parts: Buffer[] = [];
  for await (const part of archive as AsyncIterable<Buffer>) parts.push(part);
  return Buffer.concat(parts);
}

/** Each content is an image of its own. */
export async function writeImageArchive(
  path: string,
  images: readonly { readonly names: readonly string[]; readonly content: string }[],
): Promise<void> {
  const archive = pack();
  const manifest: object[] = [];
  for (const { names, content } of images) {
    const layer = await tarOf({ content });
    const digest = createHash('sha256').update(layer).digest('hex');
    const config = JSON.stringify({
      architecture: 'amd64',
      os: 'linux',
      config: { Cmd: ['/content'] },
      rootfs: { type: 'layers', diff_ids: [`sha256:${digest}`] },
      history: [{ created_by: 'test' }],
    });
    const configName = `${createHash('sha256').update(config).digest('hex')}.json`;
    archive.entry({ name: configName }, config);
    archive.entry({ name: `${digest}/layer.tar` }, layer);
    manifest.push({ Config: configName, RepoTags: names, Layers: [`${digest}/layer.tar`] });
  }
  archive.entry({ name: 'manifest.json' }, JSON.stringify(manifest));
  archive.finalize();
  await pipeline(archive, createWriteStream(path));
}
