/** Tests the rules of the pod network in the iptables of a network namespace, beside those of Docker. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, before, test } from 'node:test';
import { podPacketFilter } from '../../../../../agent/network/podnetwork/packet-filter.ts';
import { jumps } from '../../../../../agent/network/podnetwork/packet-rules.ts';

const NAMESPACE = `orcpf${process.pid}`;
const INSIDE = ['ip', 'netns', 'exec', NAMESPACE];
const made = spawnSync('ip', ['netns', 'add', NAMESPACE]).status === 0;
const skip =
  made && spawnSync('ip', ['netns', 'exec', NAMESPACE, 'iptables', '-t', 'nat', '-S']).status === 0
    ? false
    : 'no network namespaces, or no iptables';
const DOCKER = ['-s', '10.244.0.0/24', '!', '-o', 'br0', '-j', 'MASQUERADE'];

function iptables(...args: readonly string[]): string {
  const done = spawnSync('ip', ['netns', 'exec', NAMESPACE, 'iptables', '-w', '10', ...args], { encoding: 'utf8' });
  assert.equal(done.status, 0, done.stderr);
  return done.stdout;
}

const targets = (): readonly string[] =>
  iptables('-t', 'nat', '-S', 'POSTROUTING')
    .split('\n')
    .flatMap((line) => / -j (\S+)$/.exec(line)?.[1] ?? []);

before(() => {
  if (skip === false) iptables('-t', 'nat', '-N', 'ORC-OTHER');
});
after(() => {
  if (made) spawnSync('ip', ['netns', 'delete', NAMESPACE]);
});

test(
  'the rule of a network that Docker creates later does not come before those of the pod network',
  { skip },
  async () => {
    const filter = podPacketFilter(INSIDE);
    const wanted = jumps({ bridge: '' }).filter(({ table }) => table === 'nat');
    const [own = ''] = wanted.map(({ to }) => to);
    await filter.apply(4, `*nat\n:${own} - [0:0]\nCOMMIT\n`);
    assert.equal(await filter.intact(4, wanted), false);
    await filter.ensureJumps(4, wanted);
    assert.equal(await filter.intact(4, wanted), true);
    iptables('-t', 'nat', '-I', 'POSTROUTING', ...DOCKER);
    assert.equal(await filter.intact(4, wanted), false);
    await filter.ensureJumps(4, wanted);
    assert.deepEqual(targets(), [own, 'MASQUERADE']);
    // Other parts of the agent have rules there, too.
    iptables('-t', 'nat', '-I', 'POSTROUTING', '-j', 'ORC-OTHER');
    assert.equal(await filter.intact(4, wanted), true);
    await filter.ensureJumps(4, wanted);
    assert.deepEqual(targets(), ['ORC-OTHER', own, 'MASQUERADE']);
  },
);
