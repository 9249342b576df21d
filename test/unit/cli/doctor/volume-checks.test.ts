import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkLocalVolumes } from '../../../../cli/doctor/volume-checks.ts';

test('a host whose volumes have no limits gets the reason and a remedy', async () => {
  const tried: string[] = [];
  const limits = { problem: async (root: string) => (tried.push(root), 'the filesystem has no project quotas') };
  const finding = await checkLocalVolumes('/proc/self/not/there', limits);
  assert.deepEqual(tried, ['/proc/self'], 'the folder need not exist');
  assert.equal(finding.verdict, 'warn');
  assert.match(finding.text, /whatever their capacity: the filesystem has no project quotas/);
  assert.match(finding.remedy ?? '', /apt-get install quota.*prjquota/);
});

test('the report says of a host that its volumes have limits', async () => {
  assert.equal((await checkLocalVolumes('/', { problem: async () => '' })).verdict, 'ok');
});
