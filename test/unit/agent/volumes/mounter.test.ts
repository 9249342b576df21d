import assert from 'node:assert/strict';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { it } from 'node:test';
import { hostMounter } from '../../../../agent/volumes/mounter.ts';

it('a source that looks like an option stays a source of mount(8)', async (t) => {
  const directory = await mkdtemp(join(tmpdir(), 'mounter-'));
  const path = process.env['PATH'] ?? '';
  t.after(async () => {
    process.env['PATH'] = path;
    await rm(directory, { recursive: true, force: true });
  });
  await writeFile(join(directory, 'mount'), `#!/bin/sh\nprintf '%s\\n' "$@" > ${directory}/arguments\n`);
  await chmod(join(directory, 'mount'), 0o755);
  process.env['PATH'] = `${directory}:${path}`;
  await hostMounter.mount({ source: '-T/volumes/table:/x', target: '/target', type: 'nfs', options: ['ro'] });
  const [...given] = (await readFile(join(directory, 'arguments'), 'utf8')).trimEnd().split('\n');
  assert.deepEqual(given, ['-t', 'nfs', '-o', 'ro', '--', '-T/volumes/table:/x', '/target']);
});
