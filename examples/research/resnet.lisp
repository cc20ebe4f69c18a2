; A residual convolutional net with batch norm, whose running statistics are states.
(require nn arrays convolutions training)
(config size 8  channels 8  blocks 2  classes 10)
(weights (first-w [channels 3 3 3] {:init (normal 0.2)}) (first-n [channels] {:init 1}) (first-b [channels])
  (per blocks (one-w [channels channels 3 3] {:init (normal 0.1)}) (one-n [channels] {:init 1}) (one-b [channels])
    (two-w [channels channels 3 3] {:init (normal 0.1)}) (two-n [channels] {:init 1}) (two-b [channels]))
  (head-w [classes channels]) (head-b [classes]))
(state (first-m [channels]) (first-v [channels])
  (per blocks (one-m [channels]) (one-v [channels]) (two-m [channels]) (two-v [channels])))

(defn normed [x w n b means variances] (batch-norm-training (convolution x w {:padding 1}) n b means variances 0.1 1e-5))
(defn block [x l]
  (let [h (relu (normed x (one-w l) (one-n l) (one-b l) (one-m l) (one-v l)))]
    (relu (+ x (normed h (two-w l) (two-n l) (two-b l) (two-m l) (two-v l))))))

(entry fit [(images [batch size size 3] f32) (labels [batch] i32)]
  (let [x (relu (normed images first-w first-n first-b first-m first-v))
        x (fold block x (range blocks))
        means (mean (reshape x [(dim x 0) (* size size) channels]) 1)
        [loss right] (cross-entropy (linear means head-w head-b) labels classes)]
    {:loss loss :right right}))
(training fit)
