/**
 * Tests two facts of a request: its field manager, which without the parameter is the beginning of the User-Agent, as in
 * kube-apiserver, and the size of its response.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { alwaysAllow } from '../../../../controlplane/security/authorization/union.ts';
import { ApiRequest } from '../../../../controlplane/server/request.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';
import { fakeExchange } from '../../../fakes/fake-exchange.ts';

/** Returns the manager for the User-Agent, which Node.js reads as Latin-1. */
function managerOf(userAgent: string): string {
  const headers = { 'user-agent': Buffer.from(userAgent, 'utf8').toString('latin1') };
  return new ApiRequest({ ...fakeExchange(), headers }, alwaysAllow, new FakeClock()).fieldManager;
}

const AGENTS: readonly [what: string, userAgent: string, manager: string][] = [
  ['ends at the first slash', 'kubectl/v1.36.2 (linux/amd64)', 'kubectl'],
  ['has no characters that cannot be printed', 'a\tb\u00a0c/1', 'abc'],
  ['is read as UTF-8', 'Größe/1', 'Größe'],
  ['has at most 128 bytes', 'x'.repeat(200), 'x'.repeat(128)],
  ['ends before the character that exceeds 128 bytes', `${'ä'.repeat(63)}x€yz`, `${'ä'.repeat(63)}x`],
  ['is unknown without a User-Agent', '', 'unknown'],
];
for (const [what, userAgent, manager] of AGENTS)
  test(`the manager of the User-Agent ${what}`, () => assert.equal(managerOf(userAgent), manager));

test('the size of a response is its length in bytes of UTF-8', () => {
  const request = new ApiRequest({ ...fakeExchange(), send: () => {} }, alwaysAllow, new FakeClock());
  request.send(200, 'text/plain', 'Größe');
  assert.equal(request.responseBytes, 7);
});
