/**
 * Tests how the text of a TokenReview is read: 'controlplane/security/authentication/bearer.ts' and
 * 'controlplane/server/reviews/token-review.ts'.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ANONYMOUS } from '../../../../../controlplane/security/authentication/anonymous.ts';
import { reviewedToken } from '../../../../../controlplane/security/authentication/bearer.ts';
import { tokenReviewer } from '../../../../../controlplane/server/reviews/token-review.ts';

test('a text contains a token up to the first blank, without white space at its end', () => {
  for (const [text, token] of [
    ['t', 't'],
    ['t x', 't'],
    ['t\r\n', 't'],
    ['t\u2028\u0085', 't'],
    ['\tt', '\tt'],
    ['\u00a0t', '\u00a0t'],
    [' t', undefined],
    ['  ', undefined],
  ] as const)
    assert.equal(reviewedToken(text), token, JSON.stringify(text));
});

const tokens = {
  authenticateToken: async (token: string, audiences: readonly string[]) =>
    token === 't' ? { user: { name: 'u', groups: [] }, audiences } : undefined,
};
const statusOf = async (text: string, anonymous: typeof ANONYMOUS | undefined): Promise<unknown> => {
  const review = tokenReviewer({ tokens, apiAudiences: ['api'], anonymous });
  const object = { metadata: {}, spec: { token: text } };
  const reviewed = await review({ object } as unknown as Parameters<typeof review>[0]);
  return (reviewed as unknown as { readonly status: unknown }).status;
};

test('a review reports the user of the token in the text', async () => {
  assert.deepEqual(await statusOf('t x', ANONYMOUS), {
    authenticated: true,
    user: { username: 'u' },
    audiences: ['api'],
  });
  assert.deepEqual(await statusOf('other', ANONYMOUS), { user: {}, error: 'invalid bearer token' });
});

test('a text without a token is that of an anonymous caller, or of nobody if there are none', async () => {
  assert.deepEqual(await statusOf(' t', ANONYMOUS), {
    authenticated: true,
    user: { username: 'system:anonymous', groups: ['system:unauthenticated'] },
    audiences: ['api'],
  });
  assert.deepEqual(await statusOf(' t', undefined), { user: {} });
});
