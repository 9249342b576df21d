import assert from 'node:assert/strict';
import { it } from 'node:test';
import { NAT_TABLE } from '../../../../../agent/network/podnetwork/nft-rules.ts';
import { NodeRules, type NodeRulesOptions } from '../../../../../agent/network/podnetwork/node-rules.ts';
import { GUARD_TABLE } from '../../../../../agent/network/podnetwork/tunnel-guard.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';

function rulesOf(remove: (table: string) => Promise<void>): NodeRules {
  const options = {
    mode: 'routes',
    port: 0,
    masqueradeBit: 14,
    filter: { apply: () => Promise.resolve(), remove: () => Promise.resolve() },
    nft: { run: () => Promise.resolve(), hasTable: () => Promise.resolve(true), remove },
    logger: silentLogger,
  } as unknown as NodeRulesOptions;
  return new NodeRules(options);
}

it('clearing removes the nftables rules that an earlier run of the agent wrote', async () => {
  const removed: string[] = [];
  const rules = rulesOf((table) => Promise.resolve(void removed.push(table)));
  await rules.clear();
  assert.deepEqual(removed, [NAT_TABLE, GUARD_TABLE]);
  assert.equal(rules.hasCleared, true);
});

it('clearing succeeds on a host without nft', async () => {
  const rules = rulesOf(() => Promise.reject(Object.assign(new Error('spawn nft ENOENT'), { code: 'ENOENT' })));
  await rules.clear();
  assert.equal(rules.hasCleared, true);
});
