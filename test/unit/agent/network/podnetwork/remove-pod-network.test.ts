import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { it } from 'node:test';
import { removePodNetwork } from '../../../../../agent/network/podnetwork/remove-pod-network.ts';
import { temporaryFolder } from '../../../../temporary-folder.ts';

it('rules are removed from a host on which the tool ip is no longer installed', async (t) => {
  const tools = temporaryFolder();
  const log = join(tools, 'log');
  // The tools log their arguments. Every chain and table is there, and no jump.
  const script = `#!/bin/sh
echo "\${0##*/} $*" >> ${log}
case "$*" in *" -D "*) exit 1 ;; "list chains inet") printf 'table inet %s {\\n' orchlet_pod_nat orchlet_pod_network ;; esac
`;
  for (const tool of ['iptables', 'ip6tables', 'nft']) writeFileSync(join(tools, tool), script, { mode: 0o755 });
  const { PATH } = process.env;
  process.env['PATH'] = tools;
  t.after(() => (process.env['PATH'] = PATH));
  await removePodNetwork({ stateDirectory: join(tools, 'state') });
  const calls = readFileSync(log, 'utf8');
  assert.match(calls, /^iptables .* -X ORCHLET-POD-NAT$/m);
  assert.match(calls, /^ip6tables .* -X ORCHLET-POD-NAT$/m);
  assert.match(calls, /^nft delete table inet orchlet_pod_nat$/m);
  assert.match(calls, /^nft delete table inet orchlet_pod_network$/m);
});
