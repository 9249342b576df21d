import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { EntryParser, lastPosition } from '../../../../../agent/runtime/docker/log-writer.ts';

const t = (digit: number): string => `2026-01-02T03:04:0${digit}.000000000Z`;
const none = { time: '', count: 0 };

describe('the CRI log of a Docker container', () => {
  it('marks a whole line F and a part of one P', () => {
    const parser = new EntryParser(none);
    const frame = (text: string): string =>
      parser.frame({ stream: 'stderr', payload: Buffer.from(text), last: true }).toString();
    assert.equal(frame(`${t(1)} hello\n`), `${t(1)} stderr F hello\n`);
    assert.equal(frame(`${t(2)} half`), `${t(2)} stderr P half\n`);
  });
  it('puts together an entry that comes in pieces', () => {
    const parser = new EntryParser(none);
    assert.equal(parser.frame({ stream: 'stdout', payload: Buffer.from(`${t(1)} he`), last: false }).length, 0);
    assert.equal(
      parser.frame({ stream: 'stdout', payload: Buffer.from('llo\n'), last: true }).toString(),
      `${t(1)} stdout F hello\n`,
    );
  });
  it('splits the output of a terminal by lines, wherever chunks end', () => {
    const text = `${t(1)} a\n${t(2)} b c\n`;
    for (let cut = 0; cut <= text.length; cut++) {
      const parser = new EntryParser(none);
      const out = Buffer.concat([
        parser.raw(Buffer.from(text.slice(0, cut))),
        parser.raw(Buffer.from(text.slice(cut))),
        parser.flush(),
      ]).toString();
      assert.equal(out, `${t(1)} stdout F a\n${t(2)} stdout F b c\n`);
    }
  });
  it('goes on after the last line that is there, also where several bear one time', () => {
    const from = lastPosition(`${t(1)} stdout F a\n${t(2)} stdout F b\n${t(2)} stdout F c\n`);
    assert.deepEqual(from, { time: t(2), count: 2 });
    const parser = new EntryParser(from);
    const frames = ['b', 'c', 'd'].map((text) =>
      parser.frame({ stream: 'stdout', payload: Buffer.from(`${t(2)} ${text}\n`), last: true }).toString(),
    );
    assert.deepEqual(frames, ['', '', `${t(2)} stdout F d\n`]);
  });
  it('does not count a line that was cut off by a crash', () => {
    assert.deepEqual(lastPosition(`${t(1)} stdout F a\n${t(2)} stdout F b`), { time: t(1), count: 1 });
    assert.deepEqual(lastPosition(''), none);
  });
});
