/** Tests which member of etcd may be removed, and by what a member is named. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  findMember,
  type MemberHealth,
  removalProblem,
} from '../../../../../controlplane/storage/etcd-member/etcd-membership.ts';

interface Row {
  readonly id: string;
  readonly answers?: boolean;
  readonly learns?: boolean;
}

const member = ({ id, answers = true, learns = false }: Row): MemberHealth => ({
  member: { id, name: `host-${id}`, peerUrls: [`https://10.0.0.${id}:2380`], clientUrls: [], isLearner: learns },
  status: answers ? { memberId: id, leaderId: '1', version: '3.5.0', databaseBytes: 0, isLearner: learns } : undefined,
});

for (const [name, rows, id, problem] of [
  ['one of three that answer may leave', [{ id: '1' }, { id: '2' }, { id: '3' }], '3', undefined],
  ['a dead one of three may leave', [{ id: '1' }, { id: '2' }, { id: '3', answers: false }], '3', undefined],
  [
    'a live one of three may not leave while another is dead',
    [{ id: '1' }, { id: '2', answers: false }, { id: '3' }],
    '3',
    /only 1 of the 2 other members with a vote answer, and 2 are needed/,
  ],
  ['a dead one of two may leave', [{ id: '1' }, { id: '2', answers: false }], '2', undefined],
  ['the live one of two may not leave', [{ id: '1' }, { id: '2', answers: false }], '1', /only 0 of the 1/],
  ['the last one may not leave', [{ id: '1' }], '1', /the only member with a vote/],
  ['a learner does not count as a voter', [{ id: '1' }, { id: '2', learns: true }], '1', /the only member with a vote/],
  ['a learner may always leave', [{ id: '1' }, { id: '2', answers: false }, { id: '3', learns: true }], '3', undefined],
  [
    'two of five may be dead when a third leaves, but not more',
    [{ id: '1' }, { id: '2' }, { id: '3', answers: false }, { id: '4', answers: false }, { id: '5' }],
    '5',
    /only 2 of the 4 .* 3 are needed/,
  ],
] as const)
  test(name, () => {
    const found = removalProblem(rows.map(member), id);
    if (problem === undefined) assert.equal(found, undefined);
    else assert.match(found ?? '', problem);
  });

test('a member is named by its name, its ID, its address or its URL', () => {
  const members = ['10', '11'].map((id) => member({ id }).member);
  for (const text of ['host-10', '10', '10.0.0.10', 'https://10.0.0.10:2380'])
    assert.equal(findMember(members, text)?.id, '10', text);
  assert.equal(findMember(members, 'b')?.id, '11', 'as etcdctl prints it');
  assert.equal(findMember(members, '10.0.0.12'), undefined);
  const same = members.map((one) => ({ ...one, peerUrls: ['https://127.0.0.1:1'] }));
  assert.equal(findMember(same, '127.0.0.1'), undefined, 'an address of several members names none');
});
