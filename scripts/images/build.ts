/**
 * `scripts/airgap-images DIR`: writes DIR/orchlet-images.tar with the pause image and the demo image, from what this host has.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { type FileEntry, hostArchitecture, imageArchive } from '../../agent/runtime/images/image-archive.ts';
import { pauseImage } from '../../agent/runtime/images/pause-image.ts';
import { errorMessage } from '../../api/meta/error-message.ts';
import { DEMO_IMAGE } from './demo-image.ts';

/** Builds a root made of one static busybox with a link for each of its commands. */
function busyboxRoot(busybox: string): FileEntry[] {
  const listed = spawnSync(busybox, ['--list'], { encoding: 'utf8' });
  if (listed.status !== 0) throw new Error(`${busybox} --list failed: ${listed.stderr}`);
  const files: FileEntry[] = ['bin/', 'etc/', 'tmp/', 'proc/', 'sys/', 'dev/', 'root/', 'var/', 'www/', 'home/'].map(
    (path) => ({ path, type: 'directory', mode: path === 'tmp/' ? 0o1777 : 0o755 }),
  );
  files.push({ path: 'bin/busybox', type: 'file', content: readFileSync(busybox), mode: 0o755 });
  for (const command of listed.stdout.split('\n').filter((name) => name !== '' && name !== 'busybox')) {
    files.push({ path: `bin/${command}`, type: 'symlink', target: '/bin/busybox' });
  }
  const text = (path: string, content: string): FileEntry => ({
    path,
    type: 'file',
    content: Buffer.from(content),
    mode: 0o644,
  });
  files.push(text('etc/passwd', 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n'));
  files.push(text('etc/group', 'root:x:0:\nnobody:x:65534:\n'));
  files.push(text('www/index.html', 'hello from orchlet\n'));
  return files;
}

/** Finds a busybox that needs no library: an ELF file without an interpreter. */
function findBusybox(): string {
  for (const path of ['/bin/busybox', '/usr/bin/busybox', '/usr/local/bin/busybox']) {
    if (existsSync(path) && !readFileSync(path).subarray(0, 4096).includes('/ld-')) return path;
  }
  throw new Error('no static busybox on this host: apt-get install busybox-static');
}

async function main(): Promise<void> {
  const { positionals } = parseArgs({ allowPositionals: true });
  const directory = positionals[0];
  if (directory === undefined) throw new Error('usage: scripts/airgap-images DIR');
  const architecture = hostArchitecture();
  const path = join(directory, 'orchlet-images.tar');
  const env = ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'];
  const archive = await imageArchive(
    [
      pauseImage(architecture),
      { references: [DEMO_IMAGE], files: busyboxRoot(findBusybox()), command: ['/bin/sh'], env },
    ],
    architecture,
  );
  mkdirSync(directory, { recursive: true });
  writeFileSync(`${path}.new`, archive);
  renameSync(`${path}.new`, path);
  console.log(path);
}

try {
  await main();
} catch (error) {
  console.error(`airgap-images: ${errorMessage(error)}`);
  process.exitCode = 1;
}
