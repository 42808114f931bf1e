"""`import tenuto.determined` in front of `import determined` gives code Determined's names where no worker of Tenuto does it."""

from tenuto.workers.determined.naming import install

install()
