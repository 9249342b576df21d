/** The time of a comparison of secrets shows nothing of them: digests of one length are compared in constant time. */
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { test, type TestContext } from 'node:test';
import { bootstrapTokenAuthenticator } from '../../../../../controlplane/security/authentication/bootstrap-token.ts';
import { tokenFileAuthenticator } from '../../../../../controlplane/security/authentication/token-file.ts';
import { silentLogger } from '../../../../../api/component/logger.ts';
import { FakeClock } from '../../../../fakes/fake-clock.ts';

const base64 = (text: string): string => Buffer.from(text).toString('base64');

/** Returns the lengths of what is compared in constant time from now on. */
function comparisonsOf(t: TestContext): number[][] {
  const compared: number[][] = [];
  const { timingSafeEqual } = crypto;
  t.mock.method(crypto, 'timingSafeEqual', (a: Buffer, b: Buffer) => {
    compared.push([a.length, b.length]);
    return timingSafeEqual(a, b);
  });
  syncBuiltinESMExports();
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
  return compared;
}

test('the secret of a bootstrap token is compared in constant time, whichever of its characters is wrong', async (t) => {
  const authenticator = bootstrapTokenAuthenticator({
    clock: new FakeClock(),
    secret: () => ({
      metadata: { name: 'bootstrap-token-abcdef' },
      type: 'bootstrap.kubernetes.io/token',
      data: {
        'token-id': base64('abcdef'),
        'token-secret': base64('0123456789abcdef'),
        'usage-bootstrap-authentication': base64('true'),
      },
    }),
  });
  const compared = comparisonsOf(t);
  const secrets = ['0123456789abcdef', '1123456789abcdef', '0123456789abcdee', 'zzzzzzzzzzzzzzzz'];
  const known = await Promise.all(secrets.map((one) => authenticator.authenticateToken(`abcdef.${one}`, [])));
  assert.deepEqual(
    known.map((one) => one !== undefined),
    [true, false, false, false],
  );
  assert.deepEqual(compared, Array(4).fill([32, 32]));
});

test('a token of the token file is found by its digest, and compared in constant time', async (t) => {
  const file = tokenFileAuthenticator('a-long-token,ann,1\n', 'tokens.csv', silentLogger);
  const compared = comparisonsOf(t);
  assert.equal(await file.authenticateToken('a-long-tokem', []), undefined);
  assert.equal((await file.authenticateToken('a-long-token', []))?.user.name, 'ann');
  assert.deepEqual(compared, [[32, 32]]);
});
