/** HTML pages through the proxy: which links are rewritten, and that nothing else changes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HtmlLinks, throughProxy } from '../../../../controlplane/server/connect/html-links.ts';

const PLACE = { prefix: '/api/p/proxy', targetHost: '10.0.0.1:80', requestHost: 'localhost:8001' };

test('a link from the root of the target is rewritten to the proxy, and others stay unchanged', () => {
  for (const [link, turned] of [
    ['/', '/api/p/proxy/'],
    ['/a/b/?q=/c#d', '/api/p/proxy/a/b/?q=/c#d'],
    ['//10.0.0.1:80/a', '/api/p/proxy/a'],
    ['http://10.0.0.1:80/a/', '/api/p/proxy/a/'],
    ['http://localhost:8001/a', 'http://localhost:8001/api/p/proxy/a'],
    ['/api/p/proxy/a', '/api/p/proxy/a'],
    ['a/b', 'a/b'],
    ['', ''],
    ['#top', '#top'],
    ['mailto:me', 'mailto:me'],
    ['http://example.com/a', 'http://example.com/a'],
    ['http://10.0.0.1:80', 'http://10.0.0.1:80'],
  ] as const)
    assert.equal(throughProxy(link, PLACE), turned, link);
});

const turn = (link: string): string => `[${link}]`;
const PAGES = [
  ['<a href="/x">test</a>', '<a href="[/x]">test</a>'],
  ["<A class=b HREF = '/x' >", "<A class=b HREF = '[/x]' >"],
  ['<img src=/x alt="/y"/>', '<img src=[/x] alt="/y"/>'],
  ['<p href="/x">a < b <3</p>', '<p href="/x">a < b <3</p>'],
  ['<a title="a > b" href="/x">', '<a title="a > b" href="[/x]">'],
  ['<!-- <a href="/x"> --><a href="/y">', '<!-- <a href="/x"> --><a href="[/y]">'],
  [
    '<script src="/s">"<a href=\'/x\'>"</script><a href="/y">',
    '<script src="[/s]">"<a href=\'/x\'>"</script><a href="[/y]">',
  ],
  [
    '<!doctype html><form action="/f"><button formaction="/g">',
    '<!doctype html><form action="[/f]"><button formaction="[/g]">',
  ],
  ['broken <a href="/x', 'broken <a href="/x'],
] as const;

test('links of a page are turned, whatever its pieces are, and the rest stays as it came', () => {
  for (const [page, expected] of PAGES)
    for (const size of [1, 2, 3, 7, 1000]) {
      const links = new HtmlLinks(turn);
      let out = '';
      for (let at = 0; at < page.length; at += size) out += links.push(page.slice(at, at + size));
      assert.equal(out + links.end(), expected, `${page} in pieces of ${size}`);
    }
});

/** Pages of incomplete markup, by size. */
const HOSTILE: readonly (readonly [string, (size: number) => string])[] = [
  ['open tags', (size) => '<a'.repeat(size / 2)],
  ['one attribute name', (size) => `<a ${'x'.repeat(size)}`],
  ['names without values', (size) => `<a ${'x '.repeat(size / 2)}>`],
  ['open quotes', (size) => `<a href="${"'".repeat(size)}`],
  ['beginnings of comments', (size) => '<!-'.repeat(size / 3)],
  ['beginnings of the end of a script', (size) => `<script>${'</scrip'.repeat(size / 7)}`],
];

for (const [what, page] of HOSTILE)
  test(`a page of ${what} passes unchanged, also byte by byte`, () => {
    const text = page(1 << 20);
    for (const pieces of [[text], text.slice(0, 200_000).split('')]) {
      const links = new HtmlLinks(turn);
      const out = pieces.map((piece) => links.push(piece)).join('') + links.end();
      assert.equal(out, pieces.join(''));
    }
  });

test('a tag at the limit is treated alike, however the page is cut', () => {
  for (const length of [16_000, 16_383, 16_384, 16_385, 20_000]) {
    const page = `<a title="${'x'.repeat(length)}" href="/x">`;
    const whole = new HtmlLinks(turn);
    const pieces = new HtmlLinks(turn);
    const expected = whole.push(page) + whole.end();
    assert.equal([...page].map((char) => pieces.push(char)).join('') + pieces.end(), expected, `${length}`);
  }
});

test('quotes within words are no delimiters', () => {
  const links = new HtmlLinks(turn);
  assert.equal(links.push(`<a title=don't href="/x">it's</a>`), `<a title=don't href="[/x]">it's</a>`);
});

test('a tag without an end is not kept for ever', () => {
  const links = new HtmlLinks(turn);
  const page = `<a href="${'x'.repeat(100_000)}`;
  assert.equal(links.push(page), page);
});
