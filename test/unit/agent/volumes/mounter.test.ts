import assert from 'node:assert/strict';
import { chmod, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { it } from 'node:test';
import { hostMounter } from '../../../../agent/volumes/mounter.ts';
import { temporaryFolder } from '../../../temporary-folder.ts';

it('a source that looks like an option stays a source of mount(8)', async (t) => {
  const directory = temporaryFolder();
  const path = process.env['PATH'] ?? '';
  t.after(async () => {
    process.env['PATH'] = path;
  });
  await writeFile(join(directory, 'mount'), `#!/bin/sh\nprintf '%s\\n' "$@" > ${directory}/arguments\n`);
  await chmod(join(directory, 'mount'), 0o755);
  process.env['PATH'] = `${directory}:${path}`;
  await hostMounter.mount({ source: '-T/volumes/table:/x', target: '/target', type: 'nfs', options: ['ro'] });
  const [...given] = (await readFile(join(directory, 'arguments'), 'utf8')).trimEnd().split('\n');
  assert.deepEqual(given, ['-t', 'nfs', '-o', 'ro', '--', '-T/volumes/table:/x', '/target']);
});

it('a failed mount(8) is reported with its arguments, as by the kubelet', async (t) => {
  const directory = temporaryFolder();
  const path = process.env['PATH'] ?? '';
  t.after(() => {
    process.env['PATH'] = path;
  });
  await writeFile(join(directory, 'mount'), '#!/bin/sh\necho no such device >&2\nexit 32\n');
  await chmod(join(directory, 'mount'), 0o755);
  process.env['PATH'] = `${directory}:${path}`;
  await assert.rejects(hostMounter.mount({ source: 'server:/x', target: '/target', type: 'nfs' }), {
    message:
      'mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t nfs server:/x /target\nOutput: no such device\n',
  });
});
