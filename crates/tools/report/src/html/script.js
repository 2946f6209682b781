(() => {
  'use strict';
  const page = document.documentElement;
  page.classList.add('scripted');

  // Light or dark: as the system has it until someone says otherwise.
  const dark = () => page.dataset.theme
    ? page.dataset.theme === 'dark'
    : matchMedia('(prefers-color-scheme: dark)').matches;
  document.getElementById('theme').addEventListener('click', () => {
    page.dataset.theme = dark() ? 'light' : 'dark';
  });

  // A series is shown when its own button is pressed and its statistic is the chosen one, where there is a choice.
  const pressed = (button) => button.getAttribute('aria-pressed') === 'true';
  const press = (button, on) => button.setAttribute('aria-pressed', String(on));
  const show = (figure) => {
    const off = new Set();
    let choice = null;
    for (const button of figure.querySelectorAll('button[data-series]')) {
      if (!pressed(button)) off.add(button.dataset.series);
    }
    for (const button of figure.querySelectorAll('button[data-choice]')) {
      if (pressed(button)) choice = button.dataset.choice;
    }
    for (const drawn of figure.querySelectorAll('svg [data-series]')) {
      const chosen = choice === null || !drawn.dataset.choice || drawn.dataset.choice === choice;
      drawn.toggleAttribute('hidden', !chosen || off.has(drawn.dataset.series));
    }
  };
  for (const figure of document.querySelectorAll('figure')) {
    figure.addEventListener('click', (event) => {
      const button = event.target.closest('button');
      if (!button) return;
      if (button.dataset.choice) {
        for (const other of figure.querySelectorAll('button[data-choice]')) press(other, other === button);
      } else {
        press(button, !pressed(button));
      }
      show(figure);
    });
  }

  // What lies under the pointer, in words.
  const hover = document.createElement('div');
  hover.className = 'hover';
  hover.hidden = true;
  document.body.append(hover);
  let near = null;
  const leave = () => {
    if (near) near.classList.remove('near');
    near = null;
    hover.hidden = true;
  };
  const tell = (drawn, event) => {
    if (near !== drawn) {
      leave();
      near = drawn;
      near.classList.add('near');
      hover.textContent = drawn.dataset.label;
      hover.hidden = false;
    }
    const box = hover.getBoundingClientRect();
    const x = event.clientX + 16 + box.width > innerWidth ? event.clientX - 16 - box.width : event.clientX + 16;
    const y = Math.max(8, event.clientY - box.height - 12);
    hover.style.left = `${Math.max(8, x)}px`;
    hover.style.top = `${y}px`;
  };
  const REACH = 60;
  for (const drawing of document.querySelectorAll('svg')) {
    const points = [...drawing.querySelectorAll('.point[data-label]')];
    drawing.addEventListener('pointermove', (event) => {
      const under = event.target.closest('[data-label]');
      if (under) return tell(under, event);
      const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing.getScreenCTM().inverse());
      let best = null, least = REACH * REACH;
      for (const point of points) {
        if (point.closest('[hidden]')) continue;
        const x = point.cx.baseVal.value - place.x, y = point.cy.baseVal.value - place.y;
        const distance = x * x + y * y;
        if (distance < least) [best, least] = [point, distance];
      }
      return best ? tell(best, event) : leave();
    });
    drawing.addEventListener('pointerleave', leave);
  }
})();
