import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { describe, it } from 'node:test';
import { listeningPorts, portsIn } from '../../../../agent/host/listening-ports.ts';

const HEADER = '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode';
const line = (local: string, state: string): string =>
  `   0: ${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000     0        0 805093 1`;
const table = (...lines: readonly string[]): string => `${[HEADER, ...lines].join('\n')}\n`;

describe('the ports on which a host listens', () => {
  it('are those of listening sockets at all addresses and at one', () => {
    const text = table(line('00000000:0016', '0A'), line('010200C0:0050', '0A'), line('00000000:1F90', '01'));
    assert.deepEqual(portsIn(text, '0A'), [22, 80]);
    assert.deepEqual(portsIn(table(line(`${'0'.repeat(32)}:0016`, '0A')), '0A'), [22]);
  });

  it('are none of loopback, in IPv4 and IPv6', () => {
    const local = [
      '0100007F:0016',
      '3500007F:0035',
      `${'0'.repeat(24)}01000000:0016`,
      `${'0'.repeat(16)}FFFF00000100007F:0016`,
    ];
    assert.deepEqual(portsIn(table(...local.map((each) => line(each, '0A'))), '0A'), []);
  });

  it('are read from this kernel, without ports from which clients send', async (t) => {
    const server = createServer();
    t.after(() => server.close());
    for (let port = 9000; ; port++) {
      try {
        await once(server.listen(port, '0.0.0.0'), 'listening');
        assert.ok((await listeningPorts()).includes(`TCP ${port}`));
        return;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE' || port > 9100) throw error;
      }
    }
  });
});
