import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isImageReference, parseImageReference, withDefaultTag } from '../../../../api/kinds/image-reference.ts';

const digest = `sha256:${'a'.repeat(64)}`;

describe('image references', () => {
  for (const [text, expected] of [
    ['busybox', 'busybox:latest'],
    ['busybox:1', 'busybox:1'],
    ['localhost:5000/a/b', 'localhost:5000/a/b:latest'],
    [`busybox@${digest}`, `busybox@${digest}`],
    [`a.b/c:1@${digest}`, `a.b/c:1@${digest}`],
  ] as const) {
    it(`make ${expected.slice(0, 40)} of ${text.slice(0, 40)}`, () => assert.equal(withDefaultTag(text), expected));
  }
  it('name the registry, and Docker Hub where there is none', () => {
    assert.deepEqual(parseImageReference('busybox'), {
      registry: 'docker.io',
      repository: 'library/busybox',
      tag: 'latest',
      digest: '',
    });
    assert.equal(parseImageReference('registry.test:5000/a:1').registry, 'registry.test:5000');
  });
  it('refuse upper case in the words users know', () => {
    assert.throws(() => withDefaultTag('Bad Image!!'), {
      message:
        'Failed to apply default image tag "Bad Image!!": couldn\'t parse image name "Bad Image!!": invalid reference format: repository name (library/Bad Image!!) must be lowercase',
    });
  });
  for (const text of ['', 'a b', 'a:b:c', 'a//b', 'a@sha256:12']) {
    it(`refuse ${JSON.stringify(text)}`, () => assert.throws(() => withDefaultTag(text), /invalid reference format$/));
  }
});

it('the path below the registry has at most 255 characters', () => {
  assert.equal(isImageReference(`example.com/${'a'.repeat(255)}:1`), true);
  assert.equal(isImageReference(`example.com/${'a'.repeat(256)}:1`), false);
  // Names without a registry are below `library/`.
  assert.equal(isImageReference('a'.repeat(247)), true);
  assert.equal(isImageReference('a'.repeat(248)), false);
});
