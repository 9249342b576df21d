/** Tests what scripts/uninstall removes below a directory, and what it keeps. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, lstatSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, test } from 'node:test';
import { temporaryFolder } from '../../temporary-folder.ts';

const UNINSTALL = join(import.meta.dirname, '../../../scripts/uninstall');

/** The data of the units. Those of a service with `DynamicUser=` are in `private/`. */
const KEPT = [
  'etc/orchlet',
  'var/lib/orchlet',
  'var/lib/private/orchlet-controlplane',
  'var/cache/private/orchlet-controlplane',
];
const LINKS = ['var/lib/orchlet-controlplane', 'var/cache/orchlet-controlplane'];

let dest: string;
beforeEach(() => {
  dest = temporaryFolder();
  for (const path of [...KEPT, 'var/lib/other', 'var/lib/private/other']) {
    mkdirSync(join(dest, path), { recursive: true });
    writeFileSync(join(dest, path, 'file'), '');
  }
  for (const path of LINKS) symlinkSync('private/orchlet-controlplane', join(dest, path));
});

function uninstall(...args: readonly string[]): string {
  const done = spawnSync(UNINSTALL, args, { encoding: 'utf8', env: { ...process.env, DESTDIR: dest } });
  assert.equal(done.status, 0, done.stderr);
  return done.stdout;
}

test('the data stays without --purge, and the message says where', () => {
  const output = uninstall();
  for (const path of [...KEPT, ...LINKS]) assert.ok(existsSync(join(dest, path, 'file')), path);
  assert.match(output, /\/var\/lib\/orchlet-controlplane stay/);
});

test('--purge removes the data of every unit, that of a control plane alone as well, and nothing else', () => {
  const output = uninstall('--purge');
  for (const path of [...KEPT, ...LINKS])
    assert.equal(lstatSync(join(dest, path), { throwIfNoEntry: false }), undefined, path);
  assert.ok(existsSync(join(dest, 'var/lib/other/file')));
  assert.ok(existsSync(join(dest, 'var/lib/private/other/file')));
  assert.match(output, /\/var\/lib\/orchlet-controlplane/);
});
