/**
 * Loads image archives into the image store of a CRI runtime. CRI has no call for it, so the runtime's own tool does
 * it: `ctr` for containerd, and `podman`, which shares CRI-O's image store, for CRI-O.
 */
import { execFile } from 'node:child_process';
import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { extract } from 'tar-stream';
import { RuntimeError } from '../runtime.ts';

const LARGEST_MANIFEST_BYTES = 1 << 20;

/** Reads the image references from the archive's index. */
async function archiveReferences(archive: string): Promise<readonly string[]> {
  const references: string[] = [];
  const reader = extract();
  reader.on('entry', (header, stream, next) => {
    const parts: Buffer[] = [];
    const wanted = header.name === 'manifest.json' && (header.size ?? 0) <= LARGEST_MANIFEST_BYTES;
    stream.on('data', (part: unknown) => (wanted ? parts.push(part as Buffer) : 0));
    stream.on('end', () => {
      if (wanted) references.push(...tagsOf(Buffer.concat(parts).toString()));
      next();
    });
    stream.resume();
  });
  await pipeline(createReadStream(archive), reader);
  return references;
}

function tagsOf(text: string): readonly string[] {
  const entries = JSON.parse(text) as readonly { readonly RepoTags?: readonly string[] | null }[];
  return entries.flatMap((entry) => entry.RepoTags ?? []);
}

export async function importArchive(
  runtimeName: string,
  endpoint: string,
  archive: string,
): Promise<readonly string[]> {
  const references = await archiveReferences(archive);
  const socket = endpoint.replace(/^unix:\/\//, '');
  if (runtimeName === 'cri-o') await run('podman', ['load', '--input', archive]);
  else await run('ctr', ['--address', socket, '--namespace', 'k8s.io', 'images', 'import', archive]);
  return references;
}

function run(tool: string, args: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    execFile(tool, args, { maxBuffer: 1 << 20 }, (error, _stdout, stderr) => {
      if (error === null) return resolve();
      const missing = (error as NodeJS.ErrnoException).code === 'ENOENT';
      reject(
        new RuntimeError(
          missing ? 'unsupported' : 'unknown',
          missing ? `${tool} is not installed: it is needed to load image archives` : stderr.trim() || error.message,
          { cause: error },
        ),
      );
    });
  });
}
