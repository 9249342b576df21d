/**
 * Loads image archives into the image store of a CRI runtime. CRI has no call for it, so the runtime's own tool does
 * it: `ctr` for containerd, and `podman`, which shares CRI-O's image store, for CRI-O.
 */
import { execFile } from 'node:child_process';
import { archiveReferences } from '../images/archive-check.ts';
import { RuntimeError } from '../runtime.ts';

/**
 * Resolves to the names of the images. Rejects if the archive is invalid. Rejects with a `RuntimeError` that has the text of
 * the tool's standard error, or `unsupported` if the tool is not installed.
 */
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
          missing
            ? `${tool} is not installed: it is needed to load image archives`
            : inOneLine(stderr) || inOneLine(error.message),
          { cause: error },
        ),
      );
    });
  });
}

function inOneLine(text: string): string {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '')
    .join(' ');
}
