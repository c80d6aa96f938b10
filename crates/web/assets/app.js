"use strict";
fetch("/api/v1/targets")
  .then((response) => response.json())
  .then((answer) => {
    document.getElementById("targets").textContent = JSON.stringify(answer, null, 1);
  });
