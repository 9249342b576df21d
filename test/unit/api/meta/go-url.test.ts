import assert from 'node:assert/strict';
import { test } from 'node:test';
import { quote } from '../../../../api/meta/field-error.ts';
import { checkRequestUri, type GoUrl, isRequestUri, parseGoUrl, queryOf } from '../../../../api/meta/go-url.ts';
import { assertLinearTime } from '../../../fuzz/growth.ts';

test('a target of a request is an absolute URL, a path or a star, as Go takes it', () => {
  for (const text of ['http://a/b?c', 'mailto:a@b', 'http:', '*', '/a b', '//x/y', 'http://[::1]:80/', 'http://A.b:'])
    assert.equal(isRequestUri(text), true, text);
  for (const [text, why] of [
    ['', 'empty url'],
    ['a/b', 'invalid URI for request'],
    [':a', 'missing protocol scheme'],
    ['http://a:b/', 'invalid port ":b" after host'],
    ['http://::1/', 'invalid port "::1" after host'],
    ['http://a b/', 'invalid character " " in host name'],
    ['http://[::1/', "missing ']' in host"],
    ['http://a^@b/', 'net/url: invalid userinfo'],
    ['/a%zz', 'invalid URL escape "%zz"'],
    ['/a\u0001', 'net/url: invalid control character in URL'],
  ] as const)
    assert.throws(() => checkRequestUri(text), {
      message: `parse ${quote(text)}: ${why}`,
    });
});

test('the parts of a URL keep the port, the case of the host and the escapes of the path', () => {
  assert.deepEqual(parseGoUrl('HTTPS://u:p@A.b:443/a b?x#y'), {
    scheme: 'https',
    host: 'A.b:443',
    escapedPath: '/a%20b',
    rawQuery: 'x',
  });
  assert.equal(parseGoUrl('https://a/%2fb%41').escapedPath, '/%2fb%41');
  assert.deepEqual(parseGoUrl('mailto:a@b'), { scheme: 'mailto', host: '', escapedPath: '', rawQuery: '' });
  assert.equal(parseGoUrl('https://[::1]:80').host, '[::1]:80');
});

test('a query leaves out the pairs that Go does not read', () => {
  const query = queryOf(parseGoUrl('http://a/?k=1&k=a+b&x;y=2&z=%zz&e&=n&%41=%42'));
  assert.deepEqual(
    [...query],
    [
      ['k', ['1', 'a b']],
      ['e', ['']],
      ['', ['n']],
      ['A', ['B']],
    ],
  );
});

test('a query that repeats one name is read in time that grows with its length', async () => {
  assert.deepEqual(
    queryOf({ rawQuery: 'a=1&b&a=2' } as GoUrl),
    new Map([
      ['a', ['1', '2']],
      ['b', ['']],
    ]),
  );
  const read = (size: number): unknown => queryOf({ rawQuery: 'a&'.repeat(size) } as GoUrl);
  await assertLinearTime(read, { minBytes: 65_536, maxBytes: 65_536, noticeableMs: 100 });
});
