/** The cgroups of a killed test are removed by the next one. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, globSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { namespacePrefix } from '../integration/test-namespaces.ts';

const [hierarchy = '/sys/fs/cgroup'] = globSync('/sys/fs/cgroup/{memory,pids}/');

/** Creates a cgroup with one in it, unless this is not allowed here. */
function createCgroup(name: string): string | undefined {
  const path = join(hierarchy, name);
  try {
    mkdirSync(join(path, 'pod'), { recursive: true });
    return path;
  } catch {
    // Only root has cgroups.
    return undefined;
  }
}

test('cgroups of tests that no longer run are removed with what is in them, and others are kept', (t) => {
  const { pid } = spawnSync('true');
  const left = createCgroup(`orcz${pid}a`);
  const own = createCgroup(`orcz${process.pid}a`);
  if (left === undefined || own === undefined) return t.skip('this user may not create cgroups');
  namespacePrefix('z');
  assert.deepEqual([existsSync(left), existsSync(own)], [false, true]);
  spawnSync('rmdir', [join(own, 'pod'), own]);
});
