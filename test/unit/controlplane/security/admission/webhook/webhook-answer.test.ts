/** Tests that every answer of a webhook that contains no review is refused with one reason, in client-go's words. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  answerFault,
  checkReviewKind,
  decodedReview,
} from '../../../../../../controlplane/security/admission/webhook/webhook-answer.ts';

const answer = (status: number, body: string, contentType = 'application/json') => ({
  status,
  contentType,
  body: Buffer.from(body),
});

describe('the answer of a webhook', () => {
  it('with a body and a status of success is read', () => assert.equal(answerFault(answer(200, '{}')), undefined));

  for (const [what, status, body, reason] of [
    ['without a body', 200, '', '0-length response with status code: 200 and content type: application/json'],
    ['with a Status', 500, '{"kind":"Status","apiVersion":"v1","message":"no"}', 'no'],
    [
      'with a Status of another version',
      404,
      '{"kind":"Status","apiVersion":"v2","message":"no"}',
      'the server could not find',
    ],
    ['with a Status whose message is a number', 403, '{"kind":"Status","apiVersion":"v1","message":1}', 'unknown'],
    [
      'with broken JSON',
      500,
      '{"kind":',
      'an error on the server ("unknown") has prevented the request from succeeding',
    ],
    ['of status 500 without a text', 500, ' ', 'an error on the server ("unknown")'],
    ['of status 406', 406, 'x', 'the server was unable to respond with a content type that the client supports'],
    ['of status 302', 302, '', 'the server responded with the status code 302'],
    ['of status 400', 400, 'x', 'the server rejected our request'],
    ['of status 401', 401, 'x', 'the server has asked for the client to provide credentials'],
  ] as const)
    it(`${what} has no review, and says why`, () =>
      assert.ok((answerFault(answer(status, body)) ?? '').startsWith(reason)));
});

it('the reason contains what a response says as text', () => {
  const quoted = 'an error on the server ("it is down") has prevented the request from succeeding';
  for (const contentType of ['', 'text/plain; charset=utf-8'])
    assert.equal(answerFault(answer(500, ' it is down\n', contentType)), quoted);
});

it('the reason of a status that says who may do what is the text alone', () => {
  for (const status of [403, 406, 415]) assert.equal(answerFault(answer(status, ' nope\n', 'text/plain')), 'nope');
});

describe('the review of an answer', () => {
  it('may be YAML, as kube-apiserver reads it', () =>
    assert.deepEqual(decodedReview(Buffer.from('kind: AdmissionReview\nresponse: {allowed: true}\n')), {
      kind: 'AdmissionReview',
      response: { allowed: true },
    }));

  it('is refused for text that is no YAML, and for YAML that is too long to be read at once', () => {
    assert.throws(() => decodedReview(Buffer.from('a: b: c')), /^(YamlSyntaxError|Error): (?!couldn't)/);
    assert.throws(() => decodedReview(Buffer.from(`a: ${'x'.repeat(70_000)}`)), /json parse error/);
  });

  it('is empty for null, as in Go', () => assert.deepEqual(decodedReview(Buffer.from('null')), {}));

  for (const body of ['[]', '"text"', '7', 'true', '{"a":', ''])
    it(`is refused for ${body === '' ? 'an empty body' : body}`, () =>
      assert.throws(() => decodedReview(Buffer.from(body)), /^Error: couldn't get version\/kind; json parse error: /));

  it('is the object of the answer', () => assert.deepEqual(decodedReview(Buffer.from('{"a":1}')), { a: 1 }));

  for (const [body, reason] of [
    ['hello', /json: cannot unmarshal string into Go value of type struct/],
    ['9007199254740993', /json: cannot unmarshal number into Go value of type struct/],
    ['<html>', /json: cannot unmarshal string into Go value of type struct/],
  ] as const)
    it(`is refused for the text ${body} with Go's error`, () =>
      assert.throws(() => decodedReview(Buffer.from(body)), reason));

  const expected = { group: 'admission.k8s.io', version: 'v1', kind: 'AdmissionReview' };
  it('may name its kind and version, or neither', () => {
    checkReviewKind({ apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview' }, expected);
    checkReviewKind({}, expected);
  });

  for (const [what, value, reason] of [
    [
      'a status',
      { apiVersion: 'v1', kind: 'Status' },
      /converting \(v1\.Status\) to \(v1\.AdmissionReview\): unknown conversion$/,
    ],
    ['another version', { apiVersion: 'admission.k8s.io/v1beta1', kind: 'AdmissionReview' }, /unknown conversion$/],
    ['another kind', { apiVersion: 'admission.k8s.io/v1', kind: 'Pod' }, /^Error: no kind "Pod" is registered/],
    [
      'another group',
      { apiVersion: 'example.com/v1', kind: 'AdmissionReview' },
      /is registered for version "example.com\/v1"/,
    ],
  ] as const)
    it(`is refused with ${what}`, () => assert.throws(() => checkReviewKind(value, expected), reason));
});
