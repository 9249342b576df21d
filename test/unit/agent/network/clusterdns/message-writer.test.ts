/** Messages with compressed names decode to what was written, and never exceed their limit. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import dnsPacket, { type Answer } from 'dns-packet';
import fc from 'fast-check';
import { MessageWriter } from '../../../../../agent/network/clusterdns/message-writer.ts';

const label = fc.constantFrom('a', 'B', 'b', 'web', 'db-0', '10-0-0-1', 'x'.repeat(63));
const name = fc.array(label, { minLength: 1, maxLength: 3 }).map((labels) => [...labels, 'svc', 'local'].join('.'));
const record: fc.Arbitrary<Answer> = fc.oneof(
  name.map((owner): Answer => ({ type: 'A', name: owner, ttl: 5, data: '10.0.0.1' })),
  name.map((owner): Answer => ({ type: 'AAAA', name: owner, ttl: 5, data: 'fd00::1' })),
  fc
    .tuple(fc.constantFrom('CNAME', 'NS', 'PTR', 'DNAME'), name, name)
    .map(([type, owner, data]): Answer => ({ type, name: owner, ttl: 5, data }) as Answer),
  fc.tuple(name, name).map(([owner, target]): Answer => ({
    ...{ type: 'SRV', name: owner, ttl: 5 },
    data: { target, port: 80, priority: 0, weight: 1 },
  })),
);
const plain = ({ type, name: owner, ...more }: Answer): unknown => [
  type,
  owner,
  'data' in more ? more.data : undefined,
];

it('decode to the records that were written, whatever names they share', () => {
  fc.assert(
    fc.property(
      name,
      fc.array(record, { maxLength: 30 }),
      fc.array(record, { maxLength: 10 }),
      (asked, answers, more) => {
        const questions = [{ type: 'A' as const, name: asked }];
        const writer = new MessageWriter({ type: 'response', id: 7, questions }, 65_535);
        for (const answer of answers) assert.ok(writer.add('answers', answer));
        assert.ok(writer.addAll('additionals', more));
        const decoded = dnsPacket.decode(writer.message());
        assert.deepEqual(
          decoded.questions?.map((question) => question.name),
          [asked],
        );
        assert.deepEqual(decoded.answers?.map(plain), answers.map(plain));
        assert.deepEqual(decoded.additionals?.map(plain), more.map(plain));
      },
    ),
  );
});

it('never exceed the limit, and have no trace of a group of records that does not fit as a whole', () => {
  fc.assert(
    fc.property(
      fc.array(record, { maxLength: 20 }),
      fc.array(record, { minLength: 1, maxLength: 10 }),
      fc.array(record, { maxLength: 10 }),
      fc.integer({ min: 100, max: 1500 }),
      (answers, group, last, limit) => {
        const questions = [{ type: 'A' as const, name: 'a.svc.local' }];
        const writer = new MessageWriter({ type: 'response', id: 7, questions }, limit);
        const added = answers.filter((answer) => writer.add('answers', answer));
        const isWhole = writer.addAll('authorities', group);
        const after = last.filter((one) => writer.add('additionals', one));
        const message = writer.message();
        assert.ok(message.length <= limit);
        const decoded = dnsPacket.decode(message);
        assert.deepEqual(decoded.answers?.map(plain), added.map(plain));
        assert.deepEqual(decoded.authorities?.map(plain), isWhole ? group.map(plain) : []);
        assert.deepEqual(decoded.additionals?.map(plain), after.map(plain));
      },
    ),
  );
});

it('take 16 bytes for an address of the name in the question', () => {
  const writer = new MessageWriter(
    { type: 'response', id: 7, questions: [{ type: 'A', name: 'database.shop.svc.cluster.local' }] },
    512,
  );
  const fit = Array.from({ length: 100 }, (_, at) => at).filter((at) =>
    writer.add('answers', { type: 'A', name: 'database.shop.svc.cluster.local', data: `10.0.0.${at}` }),
  );
  assert.equal(fit.length, 28);
});
