import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { StatusError } from '../../../../api/meta/status-error.ts';
import { podLogQuery } from '../../../../controlplane/registry/kinds/core/pod-log-options.ts';

const read = (text: string): string => podLogQuery('p', new URLSearchParams(text)).toString();

describe('the query of a log', () => {
  it('goes on to the agent, but for what is for this server', () =>
    assert.equal(
      read('container=c&follow=true&tailLines=5&pretty=1&insecureSkipTLSVerifyBackend=true'),
      'follow=true&tailLines=5',
    ));

  for (const [query, code, message] of [
    ['tailLines=-1', 422, 'tailLines: Invalid value: -1: must be greater than or equal to 0'],
    ['limitBytes=0', 422, 'limitBytes: Invalid value: 0: must be greater than 0'],
    ['sinceSeconds=0', 422, 'sinceSeconds: Invalid value: 0: must be greater than 0'],
    [
      'sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z',
      422,
      'at most one of `sinceTime` or `sinceSeconds` may be specified',
    ],
    ['stream=Stdout', 422, 'stream: Forbidden: may not be specified'],
    ['tailLines=abc', 400, 'strconv.ParseInt: parsing "abc": invalid syntax'],
  ] as const) {
    it(`is refused with ${code}: ${query}`, () =>
      assert.throws(
        () => read(query),
        (error: unknown) => error instanceof StatusError && error.code === code && error.message.includes(message),
      ));
  }
});
